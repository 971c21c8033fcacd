import mindspore as ms
from mindspore import nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="Ascend", pynative_synchronize=True)


class Net(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.layers = [nn.Dense(width, width) for _ in range(4)]

    def construct(self, x):
        for layer in self.layers:
            x = ops.relu(layer(x))
        print(x.asnumpy().mean())
        return x


def train(net, dataset, loss_fn, optimizer):
    losses = []
    grad = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)
    for x, y in dataset:
        loss, grads = grad(x, y)
        optimizer(grads)
        losses.append(loss)
    return losses
