"""Training data is, token for token, what a rollout shows the models; roles cover exactly what each one samples."""

import pytest

from obsspec.models.tokenizer import load_vocabulary
from obsspec.render.terminal import TerminalRenderer
from obsspec.tasks.sessions import Session
from obsspec.train.encode import Example, Role, encode, encode_all
from obsspec.values import Exchange, Observation, ToolCall

VOCABULARY = load_vocabulary()
RENDERER = TerminalRenderer(VOCABULARY)
SILENT = Observation("(no output)\n(exit_code=0)", exit_code=0, empty=True)
FAILED = Observation("cat: b: No such file or directory\n(exit_code=1)", exit_code=1)
SPELLED = Observation("<|im_end|> 12  34\n(exit_code=0)", exit_code=0)


def exchange(command: str, observation: Observation) -> Exchange:
    return Exchange((ToolCall("bash", {"command": command}),), (observation,))


def session(agent: str = "explorer", answer: str | None = "done") -> Session:
    exchanges = (exchange("touch a", SILENT), exchange("cat b", FAILED), exchange("cat c", SPELLED))
    return Session("files-easy-0", agent, "Make a.", exchanges, answer, 1.0)


def texts(example: Example, role: Role) -> list[str]:
    spans = [span for span in example.spans if span.role is role]
    return [VOCABULARY.decode(example.ids[span.start : span.stop], spell_controls=True) for span in spans]


def test_the_ids_are_those_of_a_rollout() -> None:
    prompt = RENDERER.start("Make a.")
    for command, observation in (("touch a", SILENT), ("cat b", FAILED), ("cat c", SPELLED)):
        prompt = RENDERER.extend(prompt, RENDERER.call(command), (observation,))
    assert encode(session(), RENDERER).ids == prompt + RENDERER.answer("done")


def test_actions_are_all_that_a_policy_samples() -> None:
    assert texts(encode(session(), RENDERER), Role.ACTION) == [
        "$touch a<|im_end|>",
        "$cat b<|im_end|>",
        "$cat c<|im_end|>",
        "done<|im_end|>",
    ]


def test_observations_are_text_and_closing_token_without_the_opening() -> None:
    assert texts(encode(session(), RENDERER), Role.OBSERVATION) == [
        f"{o.text}<|im_end|>" for o in (SILENT, FAILED, SPELLED)
    ]


def test_an_observation_starts_where_a_world_model_continues() -> None:
    example = encode(session(), RENDERER)
    first = next(span for span in example.spans if span.role is Role.OBSERVATION)
    asked = RENDERER.open_observation(RENDERER.start("Make a."), RENDERER.call("touch a"), ())
    assert example.ids[: first.start] == asked


def test_every_token_outside_the_spans_is_given() -> None:
    example = encode(session(), RENDERER)
    sampled = {i for span in example.spans for i in range(span.start, span.stop)}
    given = [i for n, i in enumerate(example.ids) if n not in sampled]
    opening = VOCABULARY.control("<jupyter_output>")
    assert tuple(given) == (*RENDERER.start("Make a."), opening, opening, opening)


@pytest.mark.parametrize(("policy", "world"), [(1.0, 0.0), (0.0, 1.0), (0.5, 2.0)])
def test_weights_follow_the_roles(policy: float, world: float) -> None:
    example = encode(session(), RENDERER)
    expected = [0.0] * len(example.ids)
    for span in example.spans:
        for i in range(span.start, span.stop):
            expected[i] = policy if span.role is Role.ACTION else world
    assert list(example.weights(policy, world)) == expected


def test_only_a_silent_success_is_trivial() -> None:
    observed = [span.trivial for span in encode(session(), RENDERER).spans if span.role is Role.OBSERVATION]
    assert observed == [True, False, False]


def test_a_blunder_is_predicted_but_not_imitated() -> None:
    example = encode(session(agent="blunderer"), RENDERER)
    trained = [span.trained for span in example.spans]
    assert trained == [True, True, False, True, True, True, True]
    blunder = example.spans[2]
    assert not any(example.weights(1.0, 1.0)[blunder.start : blunder.stop])


def test_a_session_without_answer_ends_with_its_last_observation() -> None:
    example = encode(session(answer=None), RENDERER)
    assert example.spans[-1].role is Role.OBSERVATION
    assert example.spans[-1].stop == len(example.ids)


def test_long_sessions_are_left_out_whole() -> None:
    length = len(encode(session(), RENDERER).ids)
    assert len(encode_all([session()], RENDERER, length)) == 1
    assert encode_all([session()], RENDERER, length - 1) == []
