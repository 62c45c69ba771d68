"""The engines room: how the steps of the loop are carried out."""
