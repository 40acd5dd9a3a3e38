"""Messages of the Open Inference Protocol v2; their types stand in oip.pyi."""

from anabranch_wire.descriptors import names_of

globals().update(names_of("inference/grpc_service.proto"))
