"""The rules of MindSpeed-LLM with MindSpeed and Megatron-LM."""
