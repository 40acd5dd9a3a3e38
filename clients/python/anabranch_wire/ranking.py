"""Messages of `anabranch.v1.Ranking`; their types stand in ranking.pyi."""

from anabranch_wire.descriptors import names_of

globals().update(names_of("anabranch/v1/ranking.proto"))
