import type { ThreadState } from '@langchain/langgraph-sdk';
import { type FormEvent, useState } from 'react';
import { SubmitButton } from '../../components/button.tsx';
import { Problem } from '../../components/states.tsx';
import { parseExact } from '../../components/values/exact-json.ts';
import { ValueView } from '../../components/values/value-view.tsx';

interface OpenInterrupt {
  readonly id: string;
  readonly value: unknown;
}

/** Questions of a graph that waits, with a form that answers them. The run resumes when all have an answer. */
export function Interrupts({
  state,
  isHidden,
  onAnswer,
}: {
  readonly state: ThreadState;
  /** While a run is running. Hidden, not removed: if the run is refused, the answers are still there. */
  readonly isHidden: boolean;
  /** `resume` of the command. Unset: the viewer may not answer. */
  readonly onAnswer: ((resume: unknown) => void) | undefined;
}) {
  const interrupts = listInterrupts(state);
  const [problem, setProblem] = useState<string>();
  if (interrupts.length === 0) return null;
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget);
    try {
      const answers = interrupts.map(({ id }) => [
        id,
        data.get(`form ${id}`) === 'json' ? parseExact(String(data.get(id))) : String(data.get(id)),
      ]);
      setProblem(undefined);
      onAnswer?.(answers.length === 1 ? answers[0]?.[1] : Object.fromEntries(answers));
    } catch (error) {
      setProblem(`The answer is not JSON: ${(error as Error).message}`);
    }
  };
  return (
    <div hidden={isHidden}>
      <form className="agents-interrupts stack" onSubmit={submit} aria-label="Interrupts">
        {interrupts.map(({ id, value }, index) => (
          <fieldset key={id} className="stack">
            <legend>The graph asks{interrupts.length > 1 ? ` (${index + 1} of ${interrupts.length})` : ''}</legend>
            <ValueView title="Question" value={value} />
            {onAnswer && (
              <>
                <label className="field">
                  Answer
                  <textarea className="input" name={id} rows={2} required />
                </label>
                <div className="row wrap">
                  <label className="row">
                    <input type="radio" name={`form ${id}`} value="text" defaultChecked /> Text
                  </label>
                  <label className="row">
                    <input type="radio" name={`form ${id}`} value="json" /> JSON
                  </label>
                </div>
              </>
            )}
          </fieldset>
        ))}
        <Problem message={problem} />
        {onAnswer && (
          <div className="row">
            <SubmitButton>Answer and resume</SubmitButton>
          </div>
        )}
      </form>
    </div>
  );
}

function listInterrupts({ tasks }: ThreadState): readonly OpenInterrupt[] {
  return tasks.flatMap(({ interrupts, id }) =>
    (interrupts ?? []).map((each, index) => ({ id: each.id ?? `${id} ${index}`, value: each.value })),
  );
}
