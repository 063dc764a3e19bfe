"""FedCAPrivacy (Wei et al.): the algorithm, its two servers, what passes between them and in which envelopes."""
