"""Somebody's SCAFFOLD, compared with the method; it has a mistake."""

import numpy as np

import undrift


class Mine:
    def start(self, x0, clients):
        self.x, self.c, self.clients = x0, 0 * x0, clients
        self.cs = [0 * x0 for _ in clients]

    def round(self, cohort, batches, lr, epochs, dropped=()):
        models, changes = [], []
        for i in cohort:
            if i in dropped:
                continue
            y = self.x
            for rows in list(batches[i]) * epochs:
                y = y - lr * (self.clients[i].grad(y, rows) - self.cs[i] + self.c)
            new = self.cs[i] - self.c + (self.x - y) / (epochs * lr)
            models.append(y)
            changes.append(new - self.cs[i])
            self.cs[i] = new
        self.c = self.c + sum(changes) / len(self.clients)
        self.x = np.mean(models, axis=0)
        return self.x

    def states(self):
        return {"c": self.c, "c_i": self.cs}


print(undrift.conform(Mine, "scaffold"))
