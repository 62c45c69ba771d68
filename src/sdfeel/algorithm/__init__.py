"""The algorithm room: what is done, by whom and when; not how it is carried out."""
