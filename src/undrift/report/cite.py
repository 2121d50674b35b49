"""What to cite: the works behind algorithms, parts, samplers, partitions, models and data sets."""

from __future__ import annotations

import re
from collections.abc import Iterable

WORKS: dict[str, tuple[str, ...]] = {
    # algorithms
    "FedAvg": ("mcmahan2017",),
    "FedProx": ("li2020",),
    "SCAFFOLD": ("karimireddy2020",),
    "SCAFFOLDm": ("karimireddy2020", "varno2022"),
    "FedDyn": ("acar2021",),
    "AdaBest": ("varno2022",),
    "FedNova": ("wang2020",),
    "FedGBO": ("mills2022",),
    "MFL": ("liu2020",),
    "Mime": ("karimireddy2021",),
    "MimeLite": ("karimireddy2021",),
    # parts
    "FedGLAD": ("yang2023",),
    "ServerOpt": ("reddi2021", "hsu2019"),
    "IDA": ("yeganeh2020",),
    "Krum": ("blanchard2017",),
    "Median": ("yin2018",),
    "TrimmedMean": ("yin2018",),
    # samplers and partitions
    "MD": ("fraboni2021",),
    "AdaFL": ("chen2021",),
    "Shards": ("mcmahan2017",),
    "Dirichlet": ("acar2021",),
    "DirichletTotal": ("lin2022",),
    "Pachinko": ("reddi2021",),
    # models
    "ResNet56": ("he2016",),
    "DistilBERT": ("sanh2019",),
    # data sets
    "Digits": ("alpaydin1998",),
    "Synthetic": ("li2020",),
    "MNIST": ("lecun1998",),
    "FashionMNIST": ("xiao2017",),
    "EMNIST": ("cohen2017",),
    "CIFAR10": ("krizhevsky2009",),
    "CIFAR100": ("krizhevsky2009",),
    "FEMNIST": ("caldas2018",),
    "Shakespeare": ("mcmahan2017", "caldas2018"),
    "TinyShakespeare": ("karpathy2015",),
    "Sent140": ("go2009", "caldas2018"),
    "Newsgroups20": ("lang1995",),
    "AGNews": ("zhang2015",),
    "StackOverflow": ("reddi2021",),
}
"""name of a class → keys of the works in its reference"""


def cite(texts: Iterable[str], version: str) -> str:
    """BibTeX of undrift and of every work behind what the texts name.

    A text is what the settings of a run hold, such as "FedGLAD(AdaBest(mu=0.02))".
    """
    names = [name for text in texts for name in re.findall(r"\w+(?=\()", text)]
    keys = dict.fromkeys(key for name in names for key in WORKS.get(name, ()))
    own = _UNDRIFT.replace("VERSION", re.sub(r"[^\w.+-]", "", version))
    return "\n\n".join([own, *(ENTRIES[key] for key in keys)]) + "\n"


_UNDRIFT = """\
@software{undrift,
  title   = {undrift: federated optimisation under client drift},
  author  = {{The undrift authors}},
  version = {VERSION},
  license = {Apache-2.0}
}"""

_BIBTEX = r"""
@inproceedings{acar2021,
  title     = {Federated Learning Based on Dynamic Regularization},
  author    = {Acar, Durmus Alp Emre and Zhao, Yue and Matas, Ramon and Mattina, Matthew and
               Whatmough, Paul and Saligrama, Venkatesh},
  booktitle = {International Conference on Learning Representations},
  year      = {2021}
}

@misc{alpaydin1998,
  title        = {Optical Recognition of Handwritten Digits},
  author       = {Alpaydin, Ethem and Kaynak, Cenk},
  howpublished = {UCI Machine Learning Repository},
  year         = {1998}
}

@inproceedings{blanchard2017,
  title     = {Machine Learning with Adversaries: {B}yzantine Tolerant Gradient Descent},
  author    = {Blanchard, Peva and El Mhamdi, El Mahdi and Guerraoui, Rachid and Stainer, Julien},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {30},
  year      = {2017}
}

@misc{caldas2018,
  title         = {{LEAF}: A Benchmark for Federated Settings},
  author        = {Caldas, Sebastian and Duddu, Sai Meher Karthik and Wu, Peter and Li, Tian and
                   Kone{\v{c}}n{\'y}, Jakub and McMahan, H. Brendan and Smith, Virginia and
                   Talwalkar, Ameet},
  eprint        = {1812.01097},
  archiveprefix = {arXiv},
  year          = {2018}
}

@misc{chen2021,
  title         = {Dynamic Attention-based Communication-Efficient Federated Learning},
  author        = {Chen, Zihan and Chong, Kai Fong Ernest and Quek, Tony Q. S.},
  eprint        = {2108.05765},
  archiveprefix = {arXiv},
  year          = {2021}
}

@inproceedings{cohen2017,
  title     = {{EMNIST}: Extending {MNIST} to Handwritten Letters},
  author    = {Cohen, Gregory and Afshar, Saeed and Tapson, Jonathan and van Schaik, Andr{\'e}},
  booktitle = {International Joint Conference on Neural Networks},
  pages     = {2921--2926},
  year      = {2017}
}

@inproceedings{fraboni2021,
  title     = {Clustered Sampling: Low-Variance and Improved Representativity for Clients Selection
               in Federated Learning},
  author    = {Fraboni, Yann and Vidal, Richard and Kameni, Laetitia and Lorenzi, Marco},
  booktitle = {International Conference on Machine Learning},
  pages     = {3407--3416},
  year      = {2021}
}

@techreport{go2009,
  title       = {Twitter Sentiment Classification using Distant Supervision},
  author      = {Go, Alec and Bhayani, Richa and Huang, Lei},
  institution = {Stanford University},
  year        = {2009}
}

@inproceedings{he2016,
  title     = {Deep Residual Learning for Image Recognition},
  author    = {He, Kaiming and Zhang, Xiangyu and Ren, Shaoqing and Sun, Jian},
  booktitle = {IEEE Conference on Computer Vision and Pattern Recognition},
  pages     = {770--778},
  year      = {2016}
}

@misc{hsu2019,
  title         = {Measuring the Effects of Non-Identical Data Distribution for Federated Visual
                   Classification},
  author        = {Hsu, Tzu-Ming Harry and Qi, Hang and Brown, Matthew},
  eprint        = {1909.06335},
  archiveprefix = {arXiv},
  year          = {2019}
}

@inproceedings{karimireddy2020,
  title     = {{SCAFFOLD}: Stochastic Controlled Averaging for Federated Learning},
  author    = {Karimireddy, Sai Praneeth and Kale, Satyen and Mohri, Mehryar and Reddi, Sashank and
               Stich, Sebastian and Suresh, Ananda Theertha},
  booktitle = {International Conference on Machine Learning},
  volume    = {119},
  pages     = {5132--5143},
  year      = {2020}
}

@inproceedings{karimireddy2021,
  title     = {Breaking the Centralized Barrier for Cross-Device Federated Learning},
  author    = {Karimireddy, Sai Praneeth and Jaggi, Martin and Kale, Satyen and Mohri, Mehryar and
               Reddi, Sashank and Stich, Sebastian U. and Suresh, Ananda Theertha},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {34},
  pages     = {28663--28676},
  year      = {2021}
}

@misc{karpathy2015,
  title  = {char-rnn},
  author = {Karpathy, Andrej},
  url    = {https://github.com/karpathy/char-rnn},
  year   = {2015}
}

@techreport{krizhevsky2009,
  title       = {Learning Multiple Layers of Features from Tiny Images},
  author      = {Krizhevsky, Alex},
  institution = {University of Toronto},
  year        = {2009}
}

@inproceedings{lang1995,
  title     = {{NewsWeeder}: Learning to Filter Netnews},
  author    = {Lang, Ken},
  booktitle = {International Conference on Machine Learning},
  pages     = {331--339},
  year      = {1995}
}

@article{lecun1998,
  title   = {Gradient-Based Learning Applied to Document Recognition},
  author  = {LeCun, Yann and Bottou, L{\'e}on and Bengio, Yoshua and Haffner, Patrick},
  journal = {Proceedings of the IEEE},
  volume  = {86},
  number  = {11},
  pages   = {2278--2324},
  year    = {1998}
}

@article{li2020,
  title   = {Federated Optimization in Heterogeneous Networks},
  author  = {Li, Tian and Sahu, Anit Kumar and Zaheer, Manzil and Sanjabi, Maziar and
             Talwalkar, Ameet and Smith, Virginia},
  journal = {Proceedings of Machine Learning and Systems},
  volume  = {2},
  pages   = {429--450},
  year    = {2020}
}

@inproceedings{lin2022,
  title     = {{FedNLP}: Benchmarking Federated Learning Methods for Natural Language Processing
               Tasks},
  author    = {Lin, Bill Yuchen and He, Chaoyang and Ze, Zihang and Wang, Hulin and Hua, Yufen and
               Dupuy, Christophe and Gupta, Rahul and Soltanolkotabi, Mahdi and Ren, Xiang and
               Avestimehr, Salman},
  booktitle = {Findings of the Association for Computational Linguistics: NAACL 2022},
  pages     = {157--175},
  doi       = {10.18653/v1/2022.findings-naacl.13},
  year      = {2022}
}

@article{liu2020,
  title   = {Accelerating Federated Learning via Momentum Gradient Descent},
  author  = {Liu, Wei and Chen, Li and Chen, Yunfei and Zhang, Wenyi},
  journal = {IEEE Transactions on Parallel and Distributed Systems},
  volume  = {31},
  number  = {8},
  pages   = {1754--1766},
  year    = {2020}
}

@inproceedings{mcmahan2017,
  title     = {Communication-Efficient Learning of Deep Networks from Decentralized Data},
  author    = {McMahan, Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and
               Ag{\"u}era y Arcas, Blaise},
  booktitle = {International Conference on Artificial Intelligence and Statistics},
  volume    = {54},
  pages     = {1273--1282},
  year      = {2017}
}

@article{mills2022,
  title   = {Accelerating Federated Learning with a Global Biased Optimiser},
  author  = {Mills, Jed and Hu, Jia and Min, Geyong and Jin, Rui and Zheng, Siwei and Wang, Jin},
  journal = {IEEE Transactions on Computers},
  doi     = {10.1109/TC.2022.3212631},
  year    = {2022}
}

@inproceedings{reddi2021,
  title     = {Adaptive Federated Optimization},
  author    = {Reddi, Sashank J. and Charles, Zachary and Zaheer, Manzil and Garrett, Zachary and
               Rush, Keith and Kone{\v{c}}n{\'y}, Jakub and Kumar, Sanjiv and
               McMahan, Hugh Brendan},
  booktitle = {International Conference on Learning Representations},
  year      = {2021}
}

@misc{sanh2019,
  title         = {{DistilBERT}, a Distilled Version of {BERT}: Smaller, Faster, Cheaper and
                   Lighter},
  author        = {Sanh, Victor and Debut, Lysandre and Chaumond, Julien and Wolf, Thomas},
  eprint        = {1910.01108},
  archiveprefix = {arXiv},
  year          = {2019}
}

@inproceedings{varno2022,
  title     = {{AdaBest}: Minimizing Client Drift in Federated Learning via Adaptive Bias
               Estimation},
  author    = {Varno, Farshid and Saghayi, Marzie and Rafiee Sevyeri, Laya and Gupta, Sharut and
               Matwin, Stan and Havaei, Mohammad},
  booktitle = {Computer Vision -- ECCV 2022},
  doi       = {10.1007/978-3-031-20050-2_41},
  year      = {2022}
}

@inproceedings{wang2020,
  title     = {Tackling the Objective Inconsistency Problem in Heterogeneous Federated
               Optimization},
  author    = {Wang, Jianyu and Liu, Qinghua and Liang, Hao and Joshi, Gauri and Poor, H. Vincent},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {33},
  pages     = {7611--7623},
  year      = {2020}
}

@misc{xiao2017,
  title         = {{Fashion-MNIST}: a Novel Image Dataset for Benchmarking Machine Learning
                   Algorithms},
  author        = {Xiao, Han and Rasul, Kashif and Vollgraf, Roland},
  eprint        = {1708.07747},
  archiveprefix = {arXiv},
  year          = {2017}
}

@article{yang2023,
  title   = {When to Trust Aggregated Gradients: Addressing Negative Client Sampling in Federated
             Learning},
  author  = {Yang, Wenkai and Lin, Yankai and Zhao, Guangxiang and Li, Peng and Zhou, Jie and
             Sun, Xu},
  journal = {Transactions on Machine Learning Research},
  url     = {https://openreview.net/forum?id=v73h3bYE2Z},
  year    = {2023}
}

@inproceedings{yeganeh2020,
  title     = {Inverse Distance Aggregation for Federated Learning with Non-{IID} Data},
  author    = {Yeganeh, Yousef and Farshad, Azade and Navab, Nassir and Albarqouni, Shadi},
  booktitle = {Domain Adaptation and Representation Transfer, and Distributed and Collaborative
               Learning},
  pages     = {150--159},
  publisher = {Springer},
  year      = {2020}
}

@inproceedings{yin2018,
  title     = {{B}yzantine-Robust Distributed Learning: Towards Optimal Statistical Rates},
  author    = {Yin, Dong and Chen, Yudong and Ramchandran, Kannan and Bartlett, Peter},
  booktitle = {International Conference on Machine Learning},
  pages     = {5650--5659},
  year      = {2018}
}

@inproceedings{zhang2015,
  title     = {Character-Level Convolutional Networks for Text Classification},
  author    = {Zhang, Xiang and Zhao, Junbo and LeCun, Yann},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {28},
  pages     = {649--657},
  year      = {2015}
}
"""

ENTRIES: dict[str, str] = {
    entry.split("{", 1)[1].split(",", 1)[0]: entry for entry in _BIBTEX.strip().split("\n\n")
}
"""key → the whole entry"""
