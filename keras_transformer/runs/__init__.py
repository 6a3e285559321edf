"""One training run on disk: what it writes, how it resumes, who owns it.

`TrainingRun` puts the callbacks of `fit` in order. Keras hands one dictionary of logs from callback to callback, so in
a `fit` of your own they stand in the same order: `ResumeEpoch`; `TranslationScores`, which adds to the logs;
`MetricsLog`, `TensorBoardLog` and `EarlyStopping`, which read them; `CheckpointEvery`, which saves the state of all of
these; `StopOnSignal`, which leaves `fit` when that is done.
"""
