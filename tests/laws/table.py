"""The table of laws: every algorithm and composition that `check_algorithm` must accept."""

OPTIMISERS = ("SGDm()", "RMSProp()", "Adam()")

ALGORITHMS = [
    "FedAvg()",
    "FedAvg(weights='uniform')",
    "FedProx(mu=0.1)",
    "SCAFFOLD()",
    "SCAFFOLD(option=1)",
    "SCAFFOLD(acar_weights=True)",
    "SCAFFOLDm()",
    "SCAFFOLDm(form='printed')",
    "FedDyn(mu=0.02)",
    "FedDyn(mu=0.02, prox=0.5, scale='none')",
    "AdaBest(mu=0.02, beta=0.96)",
    "AdaBest(mu=0.1, beta=0.9, form='box', scale='none')",
    "AdaBest(mu=0.1, beta=0.9, scale='oracle', discount=False, prox=1.0)",
    "AdaBest(mu=0.1, beta=0.9, plateau=Plateau(patience=1))",
    "FedNova(momentum=0.0, mu=0.0)",
    "FedNova(momentum=0.9, mu=0.0)",
    "FedNova(momentum=0.0, mu=0.5)",
    *(f"{name}({opt})" for name in ("FedGBO", "MFL", "MimeLite", "Mime") for opt in OPTIMISERS),
    "FedGBO(HeavyBall())",
    "MimeLite(SGDm(), gradient='batch')",
]

PARTS = [
    "ServerOpt(FedAvg(), SGD(lr=0.5))",
    "ServerOpt(FedAvg(), HeavyBall())",
    "ServerOpt(FedAvg(), SGDm())",
    "ServerOpt(FedAvg(), Adam(lr=0.1))",
    "ServerOpt(FedAvg(), Adam(lr=0.1, v0=0.0, bias_correction=True))",
    "ServerOpt(FedAvg(), Adam(lr=0.1, v0=1.0, bias_correction=True, eps_form='hf'))",
    "ServerOpt(FedAvg(), Yogi(lr=0.1))",
    "ServerOpt(FedAvg(), Adagrad(lr=0.1))",
    "ServerOpt(FedAvg(), RMSProp(lr=0.1))",
    "LocalOpt(FedAvg(), HeavyBall())",
    "LocalOpt(FedAvg(), Adam(lr=0.1, eps=1e-08, beta2=0.999, bias_correction=True))",
    "Prox(FedAvg(), mu=0.1)",
    "Clip(FedAvg(), norm=0.1)",
    "FedGLAD(FedAvg())",
    "FedGLAD(FedAvg(), groups='universal')",
    "IDA(FedAvg())",
    "Krum(FedAvg(), f=1, m=1)",
    "Krum(FedAvg(), f=1, m=2)",
    "Median(FedAvg())",
    "TrimmedMean(FedAvg(), fraction=0.34)",
]

COMPOSITIONS = [
    "FedGLAD(ServerOpt(FedProx(mu=0.1), Adam(lr=0.01)))",
    "FedGLAD(ServerOpt(FedAvg(), HeavyBall()))",
    "FedGLAD(SCAFFOLD())",
    "FedGLAD(SCAFFOLDm())",
    "FedGLAD(FedDyn(mu=0.02))",
    "FedGLAD(FedDyn(mu=0.02, h_raw=True))",
    "FedGLAD(AdaBest(mu=0.02, beta=0.96))",
    "FedGLAD(FedGBO(Adam()))",
    "FedGLAD(Mime(SGDm()))",
    "FedGLAD(FedNova(momentum=0.0, mu=0.0))",
    "FedGLAD(IDA(FedAvg()))",
    "FedGLAD(Krum(FedAvg(), f=1, m=2))",
    "FedGLAD(ServerOpt(IDA(LocalOpt(Clip(Prox(AdaBest(mu=0.02, beta=0.96), mu=0.1), norm=1.0),"
    " HeavyBall())), Adam(lr=0.01)))",
    "ServerOpt(AdaBest(mu=0.02, beta=0.96), SGD(lr=0.5))",
    "ServerOpt(FedDyn(mu=0.02), SGD(lr=0.5))",
    "ServerOpt(FedGBO(RMSProp()), SGD(lr=0.5))",
    "ServerOpt(SCAFFOLD(), Adam(lr=0.1))",
    "Median(SCAFFOLD())",
    "Median(MFL(Adam()))",
    "IDA(FedNova(momentum=0.0, mu=0.0))",
    "Prox(FedGBO(SGDm()), mu=0.1)",
    "Clip(Mime(Adam()), norm=0.1)",
    "LocalOpt(SCAFFOLD(), HeavyBall())",
    "Prox(SCAFFOLD(option=1), mu=0.1)",
]

TABLE = [*ALGORITHMS, *PARTS, *COMPOSITIONS]
