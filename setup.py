"""Package metadata. The distribution is ``keras-transformer-translation``; it imports as ``keras_transformer``."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'__version__ = "([^"]+)"', (ROOT / "keras_transformer/__init__.py").read_text("utf-8"))[1]

setup(
    name="keras-transformer-translation",
    version=VERSION,
    description='The Transformer of "Attention Is All You Need" for TensorFlow and Keras 3: train, evaluate, serve.',
    long_description=(ROOT / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=["keras_transformer", "keras_transformer.*"]),
    entry_points={"console_scripts": ["keras-transformer = keras_transformer.__main__:main"]},
    package_data={"keras_transformer.server": ["page/*"]},
    install_requires=[
        "tensorflow>=2.21,<2.22",
        "keras>=3.15,<3.16",
        "tensorflow-text>=2.21,<2.22",
        "tensorflow-serving-api>=2.21,<2.22",  # the messages of warm-up requests, and gRPC
        "tensorflow-datasets>=4.9.10,<5",
        "importlib_resources>=6",  # tensorflow-datasets imports it without declaring it
        "numpy>=2,<3",
        "sentencepiece>=0.2.1,<0.3",
        "sacrebleu>=2.5,<3",
        "tensorboard>=2.20,<3",
        "tqdm>=4.60,<5",
        "tyro>=1,<2",
    ],
    extras_require={
        "test": [
            "pytest>=9,<10",
            "pytest-xdist>=3.8,<4",  # two processes: most of the time of the tests is Python's
            "hypothesis>=6,<7",
            "ruff>=0.15,<1",
            "setuptools>=77",  # test_packaging builds a wheel and a source distribution without a network
            "wheel>=0.45",
            "aiohttp>=3.14,<4",
            "prometheus-client>=0.20,<1",
            "matplotlib>=3.10,<4",
            "PyYAML>=6,<7",  # reads export/tensorflow_serving/docker-compose.yml
            "selenium>=4,<5",  # drives the system's Chromium, where there is one
        ],
        # Not in the core: Keras imports it wherever it is installed, which takes half a second.
        "plots": ["matplotlib>=3.10,<4"],  # the picture of a run
        "serve": ["aiohttp>=3.14,<4", "prometheus-client>=0.20,<1"],  # keras-transformer serve
        "ctranslate2": ["ctranslate2>=4.8,<5"],  # serving.ctranslate2
        "oracle": ["torch==2.13.*", "ctranslate2>=4.8,<5"],
        "bench": [
            *("torch==2.13.*", "ctranslate2>=4.8,<5", "transformers>=5,<6", "keras-hub>=0.32,<0.33"),
            *("aiohttp>=3.14,<4", "prometheus-client>=0.20,<1"),
        ],
        "dev": ["pre-commit>=4,<5"],
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
    ],
)
