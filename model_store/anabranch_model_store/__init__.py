"""Model repository of anabranch: versions, manifests, meaning and deployment."""
