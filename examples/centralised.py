"""All data in one place and plain PyTorch. The next step: diff centralised.py federated.py"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import undrift

digits = undrift.Digits().load(seed=0)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))

data = TensorDataset(digits.inputs, digits.targets)
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(1, 41):
    for inputs, targets in DataLoader(data, batch_size=16, shuffle=True):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimiser.step()
    if epoch % 10 == 0:
        right = model(digits.test_inputs).argmax(1) == digits.test_targets
        print(f"after {epoch} epochs: {right.float().mean():.1%} right")
