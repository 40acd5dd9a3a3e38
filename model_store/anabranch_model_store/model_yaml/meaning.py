"""`model.yaml`: what a version means; frozen, with every default, checked across its parts."""

import difflib
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from anabranch_model_store.model_yaml.features import Feature, MultiHash
from anabranch_model_store.model_yaml.item_sequences import check_sequence
from anabranch_model_store.model_yaml.optimizing import Optimize
from anabranch_model_store.model_yaml.ranking import Calibration, EasyRec, Ranking
from anabranch_model_store.model_yaml.tables import ItemTable, Lookup, TableMeaning
from anabranch_model_store.model_yaml.values import Name, Side, Span, check_disjoint
from anabranch_wire.document_fields import check_unique
from anabranch_wire.documents import Document

__all__ = ["InputMeaning", "ModelMeaning", "OutputMeaning"]


class InputMeaning(Document, frozen=True, kw_only=True):
    """What axis 0 of a graph input counts.

    Attributes:
        axis: `rows`; `ids` (of all bags in a row); `bag` (where each row's bag starts); `none`
            (the input is the same for every request).
        bag: for `ids`, the input that holds the starts.
    """

    axis: Literal["rows", "ids", "bag", "none"]
    bag: Name | None = None

    def __post_init__(self) -> None:
        if (self.axis == "ids") != (self.bag is not None):
            needs = "needs the input that holds the starts" if self.bag is None else "takes none"
            raise ValueError(f"bag: axis {self.axis} {needs}")


class OutputMeaning(Document, frozen=True, kw_only=True):
    """What one output is.

    Attributes:
        kind: of its numbers.
        description: for people.
    """

    kind: Literal["probability", "logit", "score", "vector"] = "score"
    description: Annotated[str, Meta(max_length=4096)] = ""


class ModelMeaning(Document, frozen=True, kw_only=True):
    """All of model.yaml. `ModelMeaning()` is what a version without the file means.

    Attributes:
        format: of the file.
        description: shown in documentation and metadata.
        user_inputs: graph inputs that hold one user for all rows of a request.
        row_independent: whether rows may meet other requests' rows; `auto` has it proven.
        inputs: graph input -> what its axis 0 counts, where that is not rows.
        outputs: output -> what it is.
        features: what callers of the ranking doors send.
        tables: table -> what it means.
        lookups: lookups that no node of the graph does.
        item_tables: features of candidates by id.
        optimize: settings of the optimizer.
        ranking: how candidates are ranked; None where they cannot be.
        calibration: output head -> correction after the graph.
        easyrec: names for PAI-EAS callers.
        extra: free.
    """

    format: Literal[1] = 1
    description: Annotated[str, Meta(max_length=4096)] = ""
    user_inputs: tuple[Name, ...] | Literal["auto", "none"] = "none"
    row_independent: bool | Literal["auto"] = "auto"
    inputs: Mapping[Name, InputMeaning] = msgspec.field(default_factory=dict)
    outputs: Mapping[Name, OutputMeaning] = msgspec.field(default_factory=dict)
    features: tuple[Feature, ...] = ()
    tables: Mapping[Name, TableMeaning] = msgspec.field(default_factory=dict)
    lookups: tuple[Lookup, ...] = ()
    item_tables: Mapping[Name, ItemTable] = msgspec.field(default_factory=dict)
    optimize: Optimize = msgspec.field(default_factory=Optimize)
    ranking: Ranking | None = None
    calibration: Mapping[Name, Calibration] = msgspec.field(default_factory=dict)
    easyrec: EasyRec | None = None
    extra: Mapping[str, object] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_unique((feature.name for feature in self.features), "features:")
        self._check_inputs()
        self._check_targets()
        self._check_tables()
        self._check_lookups()
        self._check_ranking()
        if self.easyrec is not None:
            for name in self.easyrec.features:
                self._feature(f"easyrec.features[{name!r}]", name)

    @property
    def files(self) -> tuple[str, ...]:
        """Files of the version that it names, each once."""
        vocabularies = [feature.vocabulary for feature in self.features]
        named = [one.file for one in vocabularies if one is not None and one.file is not None]
        return tuple(dict.fromkeys((*named, *(items.file for items in self.item_tables.values()))))

    def _check_inputs(self) -> None:
        for name, meaning in self.inputs.items():
            bag = None if meaning.bag is None else self.inputs.get(meaning.bag)
            if meaning.axis == "ids" and (bag is None or bag.axis != "bag"):
                raise ValueError(
                    f"inputs[{name!r}].bag: expected {{axis: bag}} for input {meaning.bag!r}"
                )
        if isinstance(self.user_inputs, str):
            return
        check_unique(self.user_inputs, "user_inputs:")
        looked_up = {lookup.feature for lookup in self.lookups}
        for index, feature in enumerate(self.features):
            inputs = {span.input for span in self._spans(feature)}
            if feature.name in looked_up:
                inputs.add(feature.name)
            shared = inputs.intersection(self.user_inputs)
            if feature.side == "candidate" and shared:
                raise ValueError(
                    f"features[{index}].side: candidate, but it feeds the user input "
                    f"{min(shared)!r}"
                )

    def _check_targets(self) -> None:
        """No two features write to the same input, or to the same column of one."""
        spans = [span for feature in self.features for span in self._spans(feature)]
        check_disjoint("features:", spans)

    def _spans(self, feature: Feature) -> tuple[Span, ...]:
        """Return where a feature writes to the graph; what lookups read goes to tables instead."""
        looked_up = any(lookup.feature == feature.name for lookup in self.lookups)
        return feature.length_spans if looked_up else feature.spans

    def _check_tables(self) -> None:
        owners: dict[str, str] = {}
        for table, meaning in self.tables.items():
            for name in (table, *meaning.alias):
                if name in owners:
                    raise ValueError(
                        f"tables[{table!r}].alias: {name!r} is a name of table {owners[name]!r} too"
                    )
                owners[name] = table
        reduced = [name for name, table in self.tables.items() if table.rows != "f32"]
        if reduced and self.optimize.parity is None:
            raise ValueError(
                f"tables[{reduced[0]!r}].rows: reduced precision needs a stated budget; "
                "set optimize.parity"
            )

    def _check_lookups(self) -> None:
        combined = {
            feature.name
            for feature in self.features
            if feature.multi_hash is not None and feature.multi_hash.combine != "concat"
        }
        spans = [
            Span(lookup.output.input, *lookup.output.columns, lookup.feature)
            for lookup in self.lookups
        ]
        check_disjoint(
            "lookups:",
            [
                *(span for span in spans if span.owner not in combined),
                *{span for span in spans if span.owner in combined},
            ],
        )
        for listed in self.features:
            if listed.multi_hash is not None:
                self._check_tables_of(listed.name, listed.multi_hash)
        for name, items in self.item_tables.items():
            for feature in items.columns:
                self._feature(f"item_tables[{name!r}].columns", feature, "candidate")
            place = f"item_tables[{name!r}].sequences"
            for feature, sequence in items.sequences.items():
                filled = self._feature(place, feature, "user")
                ids = self._feature(f"{place}[{feature!r}].ids", sequence.ids, "user")
                if sequence.ids in items.sequences:
                    raise ValueError(
                        f"{place}[{feature!r}].ids: {sequence.ids!r} is filled by the table itself"
                    )
                check_sequence(f"{place}[{feature!r}]", sequence, filled, ids)

    def _check_tables_of(self, name: str, multi_hash: MultiHash) -> None:
        """Check that the several keys of a feature go to a table each, and where their rows go."""
        lookups = [lookup for lookup in self.lookups if lookup.feature == name]
        if not lookups:
            return
        place = f"lookups: feature {name!r} (multi_hash)"
        tables = [lookup.table for lookup in lookups]
        if sorted(tables) != sorted(multi_hash.tables):
            raise ValueError(
                f"{place}: found lookups in {', '.join(map(repr, tables))}; expected one in each "
                f"of {', '.join(map(repr, multi_hash.tables))}"
            )
        outputs = {lookup.output for lookup in lookups}
        if multi_hash.combine != "concat" and len(outputs) > 1:
            raise ValueError(
                f"{place}: combine: {multi_hash.combine} puts all rows into the same columns; "
                f"found {len(outputs)} different outputs"
            )

    def _check_ranking(self) -> None:
        for head in self.calibration:
            self._head(f"calibration[{head!r}]", head)
        ranking = self.ranking
        if ranking is None:
            return
        self._feature("ranking.id", ranking.id, "candidate")
        if ranking.routing_key is not None:
            self._feature("ranking.routing_key", ranking.routing_key, "user")
        if ranking.item_table is not None and ranking.item_table not in self.item_tables:
            raise ValueError(f"ranking.item_table: no item table {ranking.item_table!r}")
        for head in ranking.score.heads:
            self._head("ranking.score", head)

    def _head(self, place: str, name: str) -> None:
        """Check that `name` is an output; without `outputs` every name may be one."""
        if self.outputs and name not in self.outputs:
            raise ValueError(f"{place}: {name!r} is not among outputs {sorted(self.outputs)}")

    def _feature(self, place: str, name: str, side: Side | None = None) -> Feature:
        """Return a feature by name, checking that it may stand at `place`."""
        for feature in self.features:
            if feature.name == name:
                if side is not None and feature.side != side:
                    raise ValueError(f"{place}: {name!r} is a {feature.side} feature, not a {side}")
                return feature
        close = difflib.get_close_matches(name, [feature.name for feature in self.features], n=1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{place}: no feature {name!r}{meant}")
