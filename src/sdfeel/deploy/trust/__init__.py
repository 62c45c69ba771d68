"""Who is who: certificates, identities, and callers that were turned away."""
