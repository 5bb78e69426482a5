"""What can go wrong, said for people: one line, what, where, what to do; each kind with its exit code."""


class LongtailError(Exception):
    """A failure that the user can act on. `number` is printed as error[E310]; `exit_code` ends it all."""

    exit_code = 70
    number = 700

    def __init__(self, message: str, *, number: int | None = None):
        super().__init__(message)
        if number is not None:
            self.number = number


class UsageError(LongtailError):
    """An unknown recipe, key or path, or a value out of range."""

    exit_code, number = 2, 200


class DataError(LongtailError):
    """Images, lists or labels that cannot be used."""

    exit_code, number = 3, 300


class ModelFileError(LongtailError):
    """A checkpoint or weight file that is missing, damaged or of another model."""

    exit_code, number = 4, 400


class MachineError(LongtailError):
    """Disk, memory, device, permissions."""

    exit_code, number = 5, 500


class NumericsError(LongtailError):
    """A loss, gradient or weight that is not finite."""

    exit_code, number = 6, 600


class BusyError(LongtailError):
    """Another process holds the run folder."""

    exit_code, number = 7, 701


class Stopped(LongtailError):
    """A signal ended the run after a whole step; it can be continued."""

    number = 130

    def __init__(self, message: str, *, signal_number: int):
        super().__init__(message)
        self.exit_code = 128 + signal_number
