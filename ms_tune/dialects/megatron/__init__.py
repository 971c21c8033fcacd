"""Arguments of MindSpeed-LLM's launch scripts (Megatron-LM's and MindSpeed's parsers)."""
