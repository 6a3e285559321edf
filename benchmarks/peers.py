"""Other ways to decode with the weights of one of our models, to be timed next to ours.

Each function here takes a `Transformer` of the paper's kind (post-norm, three-way tying, relu, sinusoids) and gives a
callable `run(rows) -> ids`:

    rows: list of lists of source ids, without an end mark (each system adds its own), as `Tokenizer.encode` gives.
    ids: int32 array [len(rows), num_tokens], the best hypothesis of each row.

Search is fixed so that all systems do the same work and can be compared id by id: every hypothesis has exactly
`num_tokens` tokens, none of which is the end mark; no other id is held back, and there is no length penalty to speak
of, since all lengths are equal. `beam_size=1` is greedy search.

    python benchmarks/peers.py --check

builds all three from random weights and checks that they agree with the model.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.formats.ctranslate2 import write_ctranslate2
from keras_transformer.layers.positional_embedding import sinusoidal_positions
from keras_transformer.vocabulary import END_ID, PAD_ID, START_ID

# Source rows and translations may be this long; the table of sinusoids in CTranslate2 and Marian ends here.
MAX_LENGTH = 1024


def ctranslate2_translator(
    model,
    tokenizer,
    directory,
    compute_type="float32",
    *,
    num_tokens,
    beam_size=1,
    device="cpu",
    num_threads=0,
):
    """CTranslate2 with the weights of `model`.

    Args:
        model: a `Transformer` of any kind that `write_ctranslate2` takes, with one vocabulary for both sides.
        tokenizer: a `Tokenizer` with at most as many pieces as the model has ids.
        directory: where the converted model is; it is written if it does not exist.
        compute_type: what CTranslate2 computes in, such as `"float32"`, `"int8"`, `"int8_float32"`, `"float16"`.
        num_tokens, beam_size: see the module.
        device: `"cpu"` or `"cuda"`.
        num_threads: of one batch, on CPUs. Defaults to 0, CTranslate2's own choice.
    """
    import ctranslate2

    directory = Path(directory)
    if not directory.exists():
        write_ctranslate2(model, tokenizer, directory, max_length=MAX_LENGTH)
    translator = ctranslate2.Translator(
        str(directory), device=device, compute_type=compute_type, inter_threads=1, intra_threads=num_threads
    )
    names = json.loads((directory / "shared_vocabulary.json").read_text("utf-8"))
    ids = {name: index for index, name in enumerate(names)}

    def run(rows):
        results = translator.translate_batch(
            [[names[index] for index in row] for row in rows],
            beam_size=beam_size,
            min_decoding_length=num_tokens,
            max_decoding_length=num_tokens,
        )
        return np.array([[ids[name] for name in result.hypotheses[0]] for result in results], "int32")

    return run


def marian_model(model, device="cpu"):
    """A `transformers.MarianMTModel` that computes what `model` computes; its logits agree with ours.

    Args:
        model: a `Transformer`: post-norm, three-way tying, sinusoids, `key_dim` and `value_dim` unset, relu or another
            activation that has one name in both libraries.
        device: where PyTorch puts it.
    """
    import torch
    import transformers

    config = model.get_config()
    _refuse_other_kinds(config)
    marian = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=config["source_vocabulary_size"],
            max_position_embeddings=MAX_LENGTH,
            encoder_layers=config["num_encoder_layers"],
            decoder_layers=config["num_decoder_layers"],
            encoder_ffn_dim=config["feed_forward_dim"],
            decoder_ffn_dim=config["feed_forward_dim"],
            encoder_attention_heads=config["num_heads"],
            decoder_attention_heads=config["num_heads"],
            activation_function=config["activation"],
            d_model=config["d_model"],
            scale_embedding=True,
            pad_token_id=PAD_ID,
            eos_token_id=END_ID,
            forced_eos_token_id=None,
            decoder_start_token_id=START_ID,
        )
    ).eval()
    with torch.no_grad():
        # The tied matrices are one parameter, so this sets all three.
        marian.model.shared.weight.copy_(_tensor(model.source_embedding.embeddings))
        table = sinusoidal_positions(np.arange(MAX_LENGTH, dtype="int32"), config["d_model"])
        for stack, torch_stack in (
            (model.encoder, marian.model.encoder),
            (model.decoder, marian.model.decoder),
        ):
            torch_stack.embed_positions.weight.copy_(_tensor(table))
            for layer, torch_layer in zip(stack.layers, torch_stack.layers, strict=True):
                _copy_layer(layer, torch_layer)
    return marian.to(device)


def marian_translator(model, *, num_tokens, beam_size=1, device="cpu", num_threads=None):
    """Hugging Face's `generate`, cache and all, with the weights of `model`.

    Args:
        model, device: as for `marian_model`.
        num_tokens, beam_size: see the module.
        num_threads: of PyTorch, set for the whole process in each run. Defaults to `None`, which leaves it as it is.
            On a CPU that others use too, more than one can be many times slower: the threads wait for each other.
    """
    import torch
    import transformers

    marian = marian_model(model, device)
    generation = transformers.GenerationConfig(
        num_beams=beam_size,
        do_sample=False,
        min_new_tokens=num_tokens,
        max_new_tokens=num_tokens,
        pad_token_id=PAD_ID,
        eos_token_id=END_ID,
        decoder_start_token_id=START_ID,
    )

    def run(rows):
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        source_ids = torch.tensor(_padded(rows), device=device)
        with torch.inference_mode():
            ids = marian.generate(
                input_ids=source_ids, attention_mask=(source_ids != PAD_ID).long(), generation_config=generation
            )
        return ids[:, 1:].cpu().numpy().astype("int32")  # the start id is part of what `generate` returns

    return run


def cache_free_translator(model, *, num_tokens, beam_size=1):
    """The loop that a Keras model without a cache is decoded with: every step runs the decoder on the whole prefix.

    The best such loop that stays simple: the encoder runs once, the whole search is one graph of fixed shapes, and only
    the newest position is turned into logits. See the module for the arguments.
    """

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def search(source_ids):  # [B, S]
        batch_size = tf.shape(source_ids)[0]
        memory, memory_mask = model.encode(source_ids)  # [B, S, D], [B, S]
        memory, memory_mask = (tf.repeat(x, beam_size, axis=0) for x in (memory, memory_mask))  # [B * K, ...]
        ids = tf.concat(
            [tf.fill([batch_size * beam_size, 1], START_ID), tf.fill([batch_size * beam_size, num_tokens], PAD_ID)], 1
        )  # [B * K, N + 1]
        # All beams begin alike, so only the first may choose.
        scores = tf.tile([[0.0] + [-1e9] * (beam_size - 1)], [batch_size, 1])  # [B, K]
        for step in tf.range(num_tokens):
            ids, scores = extend(ids, scores, step, memory, memory_mask)
        return tf.reshape(ids, [batch_size, beam_size, num_tokens + 1])[:, 0, 1:]  # [B, N]

    def extend(ids, scores, step, memory, memory_mask):
        batch_size = tf.shape(scores)[0]
        inputs = ids[:, :num_tokens]
        mask = tf.repeat(tf.range(num_tokens)[None] <= step, tf.shape(ids)[0], axis=0)  # [B * K, N]
        vectors = model.target_embedding(inputs, training=False)
        vectors = model.decoder(vectors, memory, inputs_mask=mask, memory_mask=memory_mask, training=False)
        newest = tf.gather(vectors, step, axis=1)  # [B * K, D]
        logits = model.target_embedding(newest[:, None], reverse=True)[:, 0]  # [B * K, V]
        vocabulary_size = logits.shape[-1]
        log_probabilities = tf.nn.log_softmax(logits) - 1e9 * tf.one_hot(END_ID, vocabulary_size)

        candidates = scores[:, :, None] + tf.reshape(log_probabilities, [batch_size, beam_size, vocabulary_size])
        scores, places = tf.math.top_k(tf.reshape(candidates, [batch_size, -1]), beam_size)  # [B, K]
        beams = places // vocabulary_size + beam_size * tf.range(batch_size)[:, None]  # [B, K]
        ids = tf.gather(ids, tf.reshape(beams, [-1]))
        tokens = tf.reshape(places % vocabulary_size, [-1, 1])  # [B * K, 1]
        ids = tf.where(tf.range(num_tokens + 1)[None] == step + 1, tokens, ids)
        return ids, scores

    def run(rows):
        return search(_padded(rows)).numpy()

    return run


def _refuse_other_kinds(config):
    wanted = {"norm_first": False, "tying": "three-way", "positions": "sinusoidal", "key_dim": None, "value_dim": None}
    other = {name: config[name] for name, value in wanted.items() if config[name] != value}
    if other or not isinstance(config["activation"], str):
        raise ValueError(f"Marian computes only models with {wanted}. Received: {other or config['activation']}")


def _copy_layer(layer, torch_layer):
    _copy_attention(layer.self_attention, torch_layer.self_attn)
    _copy_norm(layer.self_attention_residual.norm, torch_layer.self_attn_layer_norm)
    if hasattr(layer, "cross_attention"):
        _copy_attention(layer.cross_attention, torch_layer.encoder_attn)
        _copy_norm(layer.cross_attention_residual.norm, torch_layer.encoder_attn_layer_norm)
    _copy_dense(layer.feed_forward.hidden_dense, torch_layer.fc1)
    _copy_dense(layer.feed_forward.output_dense, torch_layer.fc2)
    _copy_norm(layer.feed_forward_residual.norm, torch_layer.final_layer_norm)


def _copy_attention(attention, torch_attention):
    _copy_dense(attention.query_projection, torch_attention.q_proj)
    _copy_dense(attention.key_projection, torch_attention.k_proj)
    _copy_dense(attention.value_projection, torch_attention.v_proj)
    _copy_dense(attention.output_projection, torch_attention.out_proj)


def _copy_dense(dense, linear):
    linear.weight.copy_(_tensor(dense.kernel).T)
    if dense.use_bias:
        linear.bias.copy_(_tensor(dense.bias))
    else:
        linear.bias.zero_()


def _copy_norm(norm, torch_norm):
    torch_norm.weight.copy_(_tensor(norm.gamma))
    torch_norm.bias.copy_(_tensor(norm.beta))
    torch_norm.eps = norm.epsilon


def _tensor(tensor):
    import torch

    return torch.tensor(keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32")))


def _padded(rows):
    """Rows with their end marks as one array, padded."""
    padded = np.full((len(rows), max(map(len, rows)) + 1), PAD_ID, "int32")
    for ids, row in zip(padded, rows, strict=True):
        ids[: len(row) + 1] = [*row, END_ID]
    return padded


def check(num_rows=12, num_tokens=20):
    """Build every peer from random weights, compare Marian's logits with ours and all translations with each other."""
    import torch

    from keras_transformer.data.tokenizers import Tokenizer
    from keras_transformer.transformer import Transformer

    tokenizer = Tokenizer.train(["one two three four five", "eins zwei drei vier fünf"], vocabulary_size=290)
    generator = np.random.default_rng(7)
    rows = [generator.integers(END_ID + 1, 290, size=generator.integers(1, 15)).tolist() for _ in range(num_rows)]
    target_ids = generator.integers(END_ID + 1, 300, size=(num_rows, num_tokens))
    target_ids[:, 0] = START_ID
    for use_attention_bias in (False, True):
        model = Transformer(
            300,  # more than there are pieces
            num_encoder_layers=2,
            num_decoder_layers=3,
            d_model=64,
            num_heads=4,
            feed_forward_dim=96,
            use_attention_bias=use_attention_bias,
        )
        for weight in model.trainable_variables:
            weight.assign(float(weight.path.endswith("gamma")) + 0.3 * generator.normal(size=weight.shape))

        source_ids = _padded(rows)
        logits = keras.ops.convert_to_numpy(model({"source_ids": source_ids, "target_ids": target_ids}))
        with torch.inference_mode():
            marian_logits = marian_model(model)(
                input_ids=torch.tensor(source_ids),
                attention_mask=torch.tensor(source_ids != PAD_ID).long(),
                decoder_input_ids=torch.tensor(target_ids),
            ).logits.numpy()
        error = np.abs(marian_logits - logits).max()
        print(f"use_attention_bias={use_attention_bias}: Marian's logits differ by at most {error:.1e}")
        assert error < 1e-4

        for beam_size in (1, 4):
            search = {"num_tokens": num_tokens, "beam_size": beam_size}
            with tempfile.TemporaryDirectory() as directory:
                runs = {
                    "CTranslate2": ctranslate2_translator(model, tokenizer, Path(directory) / "model", **search),
                    "Marian": marian_translator(model, **search),
                    "cache-free": cache_free_translator(model, **search),
                }
                results = {name: run(rows) for name, run in runs.items()}
            for name, ids in results.items():
                assert ids.shape == (num_rows, num_tokens), f"{name}: {ids.shape}"
                equal = (ids == results["cache-free"]).all(axis=1).sum()
                print(f"  beam_size={beam_size}, {name}: {equal} of {num_rows} rows as the cache-free loop gives them")
                assert equal >= 0.9 * num_rows  # random weights may have ties that rounding decides


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", required=True, help="compare all peers with the model")
    parser.parse_args()
    check()
