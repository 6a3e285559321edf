"""Train a translator from parallel text, score it and export it for serving.

    python recipes/train_wmt.py                                             the built-in English-German corpus
    python recipes/train_wmt.py --source train.en --target train.de        two files of your own, plain or gzip
    python recipes/train_wmt.py --dataset wmt14_translate/de-en --preset base    WMT14, the paper's base model

A run directory holds everything: configuration, tokenizer, token ids, checkpoints, logs, model, results and export.
"""

import dataclasses
import functools
import itertools
import sys

import tqdm
from builtin_corpus.corpus import BuiltinCorpus
from train_wmt_flags import MODEL_FIELDS, check_config, describe, parse_config, preset_config

import keras_transformer as kt
from keras_transformer.files import TOKENIZER_FILE, TOKENS_FOLDER
from keras_transformer.start_up import start_tensorflow


def main(arguments=None):
    """Run the recipe; see the module."""
    # Help and errors do not wait for TensorFlow.
    config = parse_config(sys.argv[1:] if arguments is None else arguments, __doc__)
    start_tensorflow()
    for stream in (sys.stdout, sys.stderr):  # no letter that an output does not know, or that waits, stops a run
        stream.reconfigure(errors="backslashreplace", line_buffering=True)
    check_config(config)
    with kt.TrainingRun(config.run_directory, config) as run:
        return train(config, run)


def train(config, run):
    """Train, score and export as the flags say; return the results, on a worker that has none `None`."""
    import keras

    from keras_transformer.runs import hosts

    corpora = open_corpora(config)
    strategy = open_strategy(config)
    keras.config.set_dtype_policy(config.precision)
    try_parts(config)
    with hosts.chief_first(strategy):
        if hosts.is_chief(strategy):
            open_run(config, run)
        dev_pairs, test_pairs = scored_pairs(corpora, "dev"), scored_pairs(corpora, "test")
        keras.utils.set_random_seed(config.seed)  # before the tokenizer: seeding destroys tokenizers in the graph
        tokenizer, store = prepare(config, corpora)
    train_batches = open_batches(config, store)
    dev_batches = open_dev_batches(config, dev_pairs, tokenizer)

    with strategy.scope():
        model, training = build_model(config, tokenizer.vocabulary_size)
    print(f"Training {model.count_params():,} parameters for {config.train_steps:,} steps")
    translator = kt.Translator(model, tokenizer, search=beam_search(config), max_extra_tokens=config.max_extra_tokens)
    # What a run must not change while it is under way.
    unchanging = {
        "pairs_sha256": store.pairs_sha256,
        "tokenizer_sha256": store.tokenizer_sha256,
        "tokens_per_batch": config.tokens_per_batch,
        "seed": config.seed,
    }
    try:
        run.fit(training, translator, train_batches, dev_batches, dev_pairs, scorers(config), unchanging)
    except kt.TrainingInterrupted as interruption:
        print(f"\nStopped by {interruption.signal} after step {interruption.step:,}, saved as {interruption.path}")
        print("The same command with --resume goes on from there.")
        return None
    with hosts.chief_first(strategy):
        if not hosts.is_chief(strategy):
            return None
        title = f"{config.source_language} to {config.target_language}, {config.preset}"
        results = run.finish(training, translator, test_pairs, scorers(config, config.lowercase_bleu), title=title)
    export = results["export"]
    print(f"\nExported to {export}. Translate with:\n  python -m keras_transformer translate --model {export} < text")
    return results


# === Text ===


def open_corpora(config):
    """The training, development and test pairs, each re-iterable."""
    if config.dataset is not None:

        def pairs(split, keep_all):
            return kt.TfdsPairs(
                config.dataset,
                split,
                source_language=config.source_language,
                target_language=config.target_language,
                data_dir=config.data_dir,
                download=config.download,
                keep_all=keep_all,
            )

        corpora = {"train": pairs("train", False)}
        corpora |= {"dev": pairs("validation", True), "test": pairs("test", True)}
    elif config.source is not None:
        corpora = {"train": kt.ParallelFiles(config.source, config.target)}
    else:
        # Made once, since it is read twice; text of one's own is read from its files each time.
        train = list(BuiltinCorpus("train", num_pairs=config.builtin_pairs))
        return {"train": train, "dev": BuiltinCorpus("dev"), "test": BuiltinCorpus("test")}
    if config.dev_source is not None:
        corpora["dev"] = kt.ParallelFiles(config.dev_source, config.dev_target, keep_all=True)
    if config.test_source is not None:
        corpora["test"] = kt.ParallelFiles(config.test_source, config.test_target, keep_all=True)
    # Sets that were not given are held out of the training text.
    whole = corpora["train"]
    missing = [split for split in ("dev", "test") if split not in corpora]
    if missing:
        corpora |= {split: kt.HeldOut(whole, split) for split in ("train", *missing)}
    return corpora


def scored_pairs(corpora, split):
    """The pairs of a set that is scored.

    Raises:
        ValueError: if there are none.
    """
    pairs = list(corpora[split])
    print(f"{split}: {getattr(corpora[split], 'report', 'built-in corpus')}")
    if not pairs:
        raise ValueError(
            f"The {split} set must hold a pair. Received: none. Where {split}_source and {split}_target are not given, "
            "it is held out of the training text: 5 %, of a large text about 1,000 pairs"
        )
    return pairs


def with_progress(pairs, description):
    """The same pairs, with a progress bar on a terminal."""
    return tqdm.tqdm(pairs, description, total=getattr(pairs, "num_rows", None), unit=" pairs", disable=None)


def open_tokenizer(config, pairs):
    """The run's tokenizer: that of an earlier start or of `init_from`, else trained on both sides of the pairs."""
    path = config.run_directory / TOKENIZER_FILE
    if path.is_file():
        return kt.Tokenizer.load(path)
    if config.init_from is not None:
        tokenizer = kt.Pretrained(config.init_from).load_tokenizer()
    else:
        tokenizer = kt.Tokenizer.train(
            itertools.chain.from_iterable(with_progress(pairs, "Reading text for the tokenizer")),
            vocabulary_size=config.vocabulary_size,
            normalization=config.normalization,
        )
    tokenizer.save(path)
    return tokenizer


def prepare(config, corpora):
    """The tokenizer and the token ids of the training text, made or found in the run directory."""
    print("Preparing the text")
    tokenizer = open_tokenizer(config, corpora["train"])
    store = kt.TokenStore.write(
        config.run_directory / TOKENS_FOLDER,
        with_progress(corpora["train"], "Encoding"),
        tokenizer,
        max_length=config.max_sentence_tokens,
    )
    print(f"train: {getattr(corpora['train'], 'report', 'built-in corpus')}\n  {store.report}")
    return tokenizer, store


def open_batches(config, store):
    """The batches that are trained on."""
    batches = kt.Batches(
        store,
        tokens_per_batch=config.tokens_per_batch,
        row_multiple=config.micro_batches if config.jit_compile else 1,  # else XLA would compile parts of two sizes
        seed=config.seed,
        num_shapes=config.batch_shapes or (8 if config.jit_compile else None),
    )
    print(batches.statistics())
    return batches


def open_dev_batches(config, pairs, tokenizer):
    """The batches that the development loss is computed of."""
    store = kt.TokenStore.from_pairs(pairs, tokenizer)  # no length limit: every sentence counts
    print(f"  {store.report}")
    longest = int(max(store.source_lengths.max(), store.target_lengths.max()))
    return kt.Batches(store, tokens_per_batch=max(config.tokens_per_batch, longest), shuffle=False)


# === Model and training ===


def open_strategy(config):
    """The distribution strategy, which places the model. It comes before all else that TensorFlow does."""
    import tensorflow as tf

    from keras_transformer.runs import hosts

    if config.strategy == "multi-worker":
        strategy = hosts.connect(reduction=config.reduction)
    elif config.strategy == "mirrored":
        strategy = hosts.replicate(reduction=config.reduction)
    else:
        strategy = tf.distribute.get_strategy()
    print(f"Training on {hosts.describe(strategy)}", flush=True)
    return strategy


def build_model(config, vocabulary_size):
    """The model, with the weights of `init_from` if there is one, and the compiled one that trains it.

    Both share their weights. Call it in the scope of the strategy.
    """
    if config.init_from is None:
        model = kt.Transformer(vocabulary_size, **{name: getattr(config, name) for name in MODEL_FIELDS})
    else:
        trained = kt.Pretrained(config.init_from)
        print(f"Beginning with {trained.path}, whose weights are stored as {trained.storage}")
        origin = trained.load_model()
        if origin.max_length is not None and config.max_sentence_tokens > origin.max_length:
            raise ValueError(
                "max_sentence_tokens must not exceed the learned positions of the model of init_from, "
                f"{origin.max_length}. Received: max_sentence_tokens={config.max_sentence_tokens}"
            )
        regularisation = {name: getattr(config, name) for name in MODEL_FIELDS if name.endswith("dropout")}
        model = kt.Transformer(**{**origin.get_config(), **regularisation, "dtype": config.precision})
        kt.copy_weights(origin, model)
    if config.freeze:
        print("Frozen: " + ", ".join(kt.freeze(model, config.freeze)))
    moving = {"use_ema": True, "ema_momentum": config.average_momentum} if config.average == "moving" else {}
    training = kt.TrainingModel(
        model, num_micro_batches=config.micro_batches, max_skipped_steps=config.max_skipped_steps
    )
    training.compile(
        optimizer=kt.Adam(
            learning_rate_schedule(config, model),
            beta_1=0.9,
            beta_2=0.98,
            epsilon=1e-9,
            global_clipnorm=config.clip_norm,
            **moving,
        ),
        loss=kt.LabelSmoothedCrossEntropy(label_smoothing=config.label_smoothing),
        metrics=[kt.TokenAccuracy(), kt.Perplexity(), kt.TokenCount(), kt.PaddingShare()],
        jit_compile=config.jit_compile,
    )
    return model, training


def learning_rate_schedule(config, model):
    """The learning rate over the updates."""
    peak = config.peak_learning_rate or (model.get_config()["d_model"] * max(config.warmup_steps, 1)) ** -0.5
    if config.schedule == "cosine":
        return kt.CosineSchedule(peak, config.train_steps, config.warmup_steps, config.final_fraction)
    if config.schedule == "constant":
        return kt.ConstantSchedule(peak, config.warmup_steps)
    return kt.WarmupSchedule.from_peak(peak, config.warmup_steps)


def scorers(config, lowercase=False):
    """The scores of translations by name, for the target language."""
    language = config.target_language
    names = {"bleu": functools.partial(kt.bleu, target_language=language)}
    if lowercase:
        names["bleu_lowercase"] = functools.partial(kt.bleu, target_language=language, lowercase=True)
    return names | {"chrf": functools.partial(kt.chrf, target_language=language)}


def beam_search(config):
    """The search that scores the test set and that is exported."""
    return kt.BeamSearch(beam_size=config.beam_size, length_penalty=config.length_penalty)


def try_parts(config):
    """Build a small model as the real one will be built, and use the rest once: what is needed last is tried first.

    Raises:
        ValueError: if a part refuses its arguments, which have the names of the flags.
        ImportError: if the score of the target language needs a package that is not there.
    """
    layers = {name: min(getattr(config, name), 1) for name in ("num_encoder_layers", "num_decoder_layers")}
    try:
        beam_search(config)
        build_model(dataclasses.replace(config, **layers, init_from=None, freeze=()), vocabulary_size=8)
    except ValueError as error:
        raise ValueError(str(error).replace("`", "")) from error
    for scorer in scorers(config).values():
        scorer(["one"], ["one"])


def open_run(config, run):
    """Open the run with its configuration, see `TrainingRun.open`."""
    # Flags that an older run does not know: it was made as their defaults say.
    defaults = describe(preset_config(config.preset))
    run.open(describe(config), resume=config.resume, overwrite=config.overwrite, defaults=defaults)


if __name__ == "__main__":
    main()
