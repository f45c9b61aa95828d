"""Configurations of tiny models of transformers' families: the true structure, few of each size.

Written by hand from the classes of `transformers.models`; the weights are random, from a seed.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

WIDTH = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 64}  # fmt: skip
# No special token: the usual numbers of many families lie beyond so small a vocabulary.
TOKENS = {"vocab_size": 99, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXT = {**WIDTH, **TOKENS, "max_position_embeddings": 64}
GROUPED = {**TEXT, "num_key_value_heads": 2}
EXPERTS = {**GROUPED, "num_experts_per_tok": 2, "head_dim": 8}
IMAGE = {**WIDTH, "image_size": 32, "patch_size": 16}
STAGES = {"image_size": 32, "depths": [1, 1], "num_labels": 4}
TWO = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
       "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
       "vocab_size": 99}  # fmt: skip
START = {**TOKENS, "decoder_start_token_id": 2, "max_position_embeddings": 64}
SOUND = {**WIDTH, "vocab_size": 20, "conv_dim": [16, 16], "conv_stride": [5, 2],
         "conv_kernel": [10, 3], "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
         "num_conv_pos_embedding_groups": 2}  # fmt: skip
T5 = {"model_type": "t5", "d_model": 32, "num_layers": 2, "num_heads": 2, "d_kv": 16, "d_ff": 32,
      "vocab_size": 99}  # fmt: skip

ENCODERS: dict[str, Config] = {
    "bert": TEXT, "roberta": TEXT, "electra": {**TEXT, "embedding_size": 16},
    "albert": {**TEXT, "embedding_size": 16}, "mpnet": TEXT, "xlm-roberta": TEXT,
    "camembert": TEXT, "ernie": TEXT, "nomic_bert": TEXT, "roformer": TEXT, "megatron-bert": TEXT,
    "distilbert": {**TOKENS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64,
                   "max_position_embeddings": 64},
    "deberta": {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "deberta-v2": {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "xlnet": {**TOKENS, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
    "modernbert": {**TEXT, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2},
    "esm": {**TEXT, "position_embedding_type": "rotary", "mask_token_id": 3},
    "convbert": {**TEXT, "embedding_size": 32}, "squeezebert": {**TEXT, "embedding_size": 32},
    "funnel": {**TOKENS, "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64,
               "block_sizes": [1, 1]},
    "mobilebert": {**TEXT, "embedding_size": 16, "intra_bottleneck_size": 32,
                   "true_hidden_size": 32},
    "fnet": TEXT, "layoutlm": TEXT, "rembert": TEXT, "ibert": TEXT, "canine": TEXT,
}  # fmt: skip
DECODERS: dict[str, Config] = {
    "gpt2": {**TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "gpt_neo": {**TOKENS, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
                "attention_types": [[["global", "local"], 1]], "window_size": 8,
                "max_position_embeddings": 64},
    "gptj": {**TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4,
             "n_positions": 64},
    "gpt_neox": TEXT, "gpt_bigcode": {**TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4,
                                      "n_positions": 64},
    "llama": GROUPED, "mistral": GROUPED, "gemma": {**GROUPED, "head_dim": 8},
    "gemma2": {**GROUPED, "head_dim": 8, "sliding_window": 8},
    "gemma3_text": {**GROUPED, "head_dim": 8, "sliding_window": 8},
    "phi": TEXT, "phi3": {**GROUPED, "sliding_window": 8}, "qwen2": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 8}, "stablelm": GROUPED, "starcoder2": GROUPED,
    "olmo": GROUPED, "olmo2": GROUPED, "cohere": GROUPED, "glm": {**GROUPED, "head_dim": 8},
    "granite": GROUPED, "smollm3": GROUPED, "nemotron": GROUPED,
    "helium": {**GROUPED, "head_dim": 8},
    "persimmon": TEXT, "exaone4": {**GROUPED, "sliding_window": 8}, "biogpt": TEXT,
    "falcon": {**TEXT, "new_decoder_architecture": False},
    "bloom": {**TOKENS, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "mpt": {**TOKENS, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64},
    "opt": {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "codegen": {**TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4,
                "n_positions": 64},
    "mixtral": {**GROUPED, "num_local_experts": 4},
    "qwen2_moe": {**EXPERTS, "num_experts": 4, "moe_intermediate_size": 16,
                  "shared_expert_intermediate_size": 16},
    "qwen3_moe": {**EXPERTS, "num_experts": 4, "moe_intermediate_size": 16},
    "olmoe": {**EXPERTS, "num_experts": 4},
    "granitemoe": {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v3": {**TEXT, "num_key_value_heads": 4, "n_routed_experts": 4,
                    "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
                    "moe_intermediate_size": 16, "q_lora_rank": 16, "kv_lora_rank": 16,
                    "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8,
                    "first_k_dense_replace": 1, "n_shared_experts": 1},
    "gpt_oss": {**EXPERTS, "num_local_experts": 4, "sliding_window": 8},
    "mamba": {**TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "mamba2": {**TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8,
               "num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 8, "expand": 2,
               "time_step_limit": [0.0, float("inf")]},
    "falcon_mamba": {**TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "rwkv": {**TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32,
             "context_length": 64},
    "recurrent_gemma": {**GROUPED, "head_dim": 8, "lru_width": 32, "num_hidden_layers": 3,
                        "attention_window_size": 8},
}  # fmt: skip
BOTH: dict[str, Config] = {
    "t5": {**T5, "architectures": ["T5ForConditionalGeneration"]},
    "mt5": {**T5, "model_type": "mt5"},
    "bart": {**TWO, "max_position_embeddings": 64},
    "mbart": {**TWO, **START}, "pegasus": {**TWO, **START}, "marian": {**TWO, **START},
    "m2m_100": {**TWO, **START}, "blenderbot": {**TWO, **START},
    "led": {**TWO, **START, "attention_window": 8, "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 64},
    "whisper": {**TWO, "max_source_positions": 20, "num_mel_bins": 8,
                "max_target_positions": 64, "pad_token_id": 1, "bos_token_id": 1,
                "eos_token_id": 1, "decoder_start_token_id": 1},
    "speech_to_text": {**TWO, **START, "input_feat_per_channel": 8, "input_channels": 1,
                       "conv_channels": 16, "max_source_positions": 64,
                       "max_target_positions": 64},
}  # fmt: skip
SEEN: dict[str, Config] = {
    "vit": IMAGE, "deit": IMAGE, "beit": {**IMAGE, "use_relative_position_bias": True},
    "dinov2": IMAGE, "vit_mae": {**IMAGE, "decoder_hidden_size": 16,
                                 "decoder_num_attention_heads": 2, "decoder_num_hidden_layers": 1,
                                 "decoder_intermediate_size": 16},
    "swin": {**STAGES, "patch_size": 4, "embed_dim": 16, "num_heads": [2, 2], "window_size": 4},
    "swinv2": {**STAGES, "patch_size": 4, "embed_dim": 16, "num_heads": [2, 2], "window_size": 4},
    "convnext": {**STAGES, "num_stages": 2, "hidden_sizes": [8, 16]},
    "convnextv2": {**STAGES, "num_stages": 2, "hidden_sizes": [8, 16]},
    "resnet": {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1]},
    "regnet": {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1],
               "groups_width": 8},
    "mobilenet_v2": {"image_size": 32, "depth_multiplier": 0.35},
    "mobilevit": {"image_size": 64, "hidden_sizes": [16, 24, 32],
                  "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 32], "num_attention_heads": 2},
    "efficientnet": {"image_size": 32, "width_coefficient": 0.25, "depth_coefficient": 0.25,
                     "hidden_dim": 320},
    "segformer": {"image_size": 64, "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 16, 16],
                  "num_attention_heads": [1, 2, 2, 2], "decoder_hidden_size": 16,
                  "architectures": ["SegformerForSemanticSegmentation"]},
    "poolformer": {"image_size": 32, "depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 16, 16]},
    "clip_vision_model": {**IMAGE, "architectures": ["CLIPVisionModel"]},
    "siglip_vision_model": {**IMAGE, "architectures": ["SiglipVisionModel"]},
    "clip": {"architectures": ["CLIPModel"], "projection_dim": 16,
             "text_config": {**TEXT, "eos_token_id": 98},
             "vision_config": IMAGE},
    "detr": {"architectures": ["DetrForObjectDetection"], "use_timm_backbone": False,
             "use_pretrained_backbone": False, "backbone": None, "d_model": 32,
             "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
             "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
             "num_queries": 5, "backbone_config": {
                 "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16],
                 "depths": [1, 1], "out_features": ["stage2"]}},
    "yolos": {**IMAGE, "image_size": [32, 32], "num_detection_tokens": 4,
              "architectures": ["YolosForObjectDetection"]},
    "dpt": {**IMAGE, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 16,
            "architectures": ["DPTForDepthEstimation"]},
    "videomae": {**IMAGE, "num_frames": 4, "tubelet_size": 2,
                 "architectures": ["VideoMAEForVideoClassification"]},
}  # fmt: skip
HEARD: dict[str, Config] = {
    "wav2vec2": SOUND, "hubert": SOUND, "wavlm": SOUND, "sew": {**SOUND, "squeeze_factor": 2},
    "unispeech": SOUND, "data2vec-audio": {**SOUND, "conv_pos_kernel_size": 3},
    "audio-spectrogram-transformer": {**WIDTH, "patch_size": 8, "max_length": 32,
                                      "num_mel_bins": 16, "frequency_stride": 8,
                                      "time_stride": 8,
                                      "architectures": ["ASTForAudioClassification"]},
}  # fmt: skip

CONFIGS: dict[str, Config] = {
    family: {"model_type": family, **config}
    for kind in (ENCODERS, DECODERS, BOTH, SEEN, HEARD)
    for family, config in kind.items()
}
