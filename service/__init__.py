"""The service: HTTP to policy to tokens to stages to answers. Never imports torch."""
