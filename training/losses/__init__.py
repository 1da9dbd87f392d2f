"""One loss a file; `joint.py` weighs them. Similarity, loss and reduction are apart."""
