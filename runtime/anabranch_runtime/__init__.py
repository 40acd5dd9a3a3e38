"""Session group, executors, batching and dense backends of anabranch."""
