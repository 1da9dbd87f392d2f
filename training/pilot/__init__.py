"""The pilot experiment: do contrastive gradients pull against cross-entropy's, and where?"""
