"""Run by test_interop.py with optimum's own Python: load bundles as optimum does and print what they answer, as JSON.

    optimum's python optimum_answers.py REQUEST.json

A request is a list of {"folder", "class", "ids"}; ids are one row of token ids.
"""

import json
import sys
import warnings

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
from optimum import onnxruntime as optimum  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

TEXT = "My new card still has not arrived, where is it?"


def main() -> None:
    answers = []
    for asked in json.load(open(sys.argv[1])):  # noqa: SIM115
        model = getattr(optimum, asked["class"]).from_pretrained(asked["folder"], file_name="model.onnx")
        ids = np.array([asked["ids"]], np.int64)
        outputs = model(input_ids=ids, attention_mask=np.ones_like(ids))
        tokenizer = AutoTokenizer.from_pretrained(asked["folder"])
        answers.append(
            {
                "outputs": {name: np.asarray(value).tolist() for name, value in outputs.items()},
                "ids": tokenizer(TEXT)["input_ids"],
            }
        )
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
