"""The parts of reverb that use TensorFlow, which is imported when one of them is first used.

| module       | contents                                                          |
| ------------ | ----------------------------------------------------------------- |
| `loading`    | importing TensorFlow; classes that derive from `tf.data.Dataset`  |
| `arguments`  | the arguments of datasets, and the specs of their elements        |
| `sampling`   | the base of the dataset classes of samples                        |
| `streams`    | the samplers behind iterators, called from TensorFlow's threads   |
| `checks`     | comparing requests, signatures and samples                        |
| `graph`      | the datasets as TensorFlow's operations, and errors in graphs     |
| `operations` | the calls of TFClient                                             |
| `patterns`   | patterns applied to a dataset of steps                            |
"""
