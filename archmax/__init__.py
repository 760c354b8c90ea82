"""archmax: governed LLM-agent workflows. The one public package; the other top-level packages are private."""
