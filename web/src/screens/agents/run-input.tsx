import { type FormEvent, type KeyboardEvent, useState } from 'react';
import { Button, SubmitButton } from '../../components/button.tsx';
import { Problem } from '../../components/states.tsx';
import { formatExact, parseExact } from '../../components/values/exact-json.ts';
import { useSchemas } from './agent-queries.ts';

type Form = 'Message' | 'JSON';
interface Schema {
  readonly type?: unknown;
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Schema>>;
}

/** Input of a run: a message as text if the graph has messages, or JSON, which starts with the fields of the schema. */
export function RunInput({
  assistantId,
  isRunning,
  canContinue,
  onRun,
}: {
  readonly assistantId: string | undefined;
  readonly isRunning: boolean;
  /** Whether a run without input can continue the thread. */
  readonly canContinue: boolean;
  /** Returns whether the run began. */
  readonly onRun: (body: object) => Promise<boolean>;
}) {
  const schemas = useSchemas(assistantId);
  const schema = (schemas.data?.input_schema ?? schemas.data?.state_schema ?? undefined) as Schema | undefined;
  const properties = schema?.properties;
  const [chosen, setForm] = useState<Form>();
  // Without a schema, most graphs have messages.
  const form = chosen ?? (properties && !('messages' in properties) ? 'JSON' : 'Message');
  const [message, setMessage] = useState('');
  const [written, setJson] = useState<string>();
  const json = written ?? formatExact(buildTemplate(properties));
  const [problem, setProblem] = useState<string>();

  const run = () => {
    setProblem(undefined);
    if (form === 'Message') {
      setMessage('');
      void onRun({ input: { messages: [{ role: 'user', content: message }] } }).then((hasBegun) => {
        // The next message may have been written meanwhile.
        if (!hasBegun) setMessage((next) => next || message);
      });
      return;
    }
    try {
      void onRun({ input: parseExact(json) });
    } catch (error) {
      setProblem(`The input is not JSON: ${(error as Error).message}`);
    }
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey) || isRunning) return;
    event.preventDefault();
    run();
  };
  return (
    <form
      className="stack"
      onSubmit={(event: FormEvent) => {
        event.preventDefault();
        run();
      }}
    >
      <fieldset className="forms">
        <legend className="visually-hidden">Form of the input</legend>
        {(['Message', 'JSON'] as const).map((each) => (
          <button key={each} type="button" className="chip" aria-pressed={each === form} onClick={() => setForm(each)}>
            {each}
          </button>
        ))}
      </fieldset>
      <label className="field">
        {form === 'Message' ? 'Message' : 'Input'}
        <textarea
          className={form === 'Message' ? 'input' : 'input mono'}
          rows={form === 'Message' ? 4 : 8}
          spellCheck={form === 'Message'}
          value={form === 'Message' ? message : json}
          onChange={({ target }) => (form === 'Message' ? setMessage : setJson)(target.value)}
          onKeyDown={onKeyDown}
        />
      </label>
      <Problem message={problem} />
      <div className="row wrap">
        <SubmitButton disabled={isRunning || (form === 'Message' && message === '')}>Run</SubmitButton>
        {canContinue && (
          <Button disabled={isRunning} onClick={() => void onRun({ input: null })}>
            Continue without input
          </Button>
        )}
        <span className="muted">
          <kbd>Ctrl</kbd> <kbd>Enter</kbd>
        </span>
      </div>
    </form>
  );
}

/** Returns an object with the fields of the schema and empty values. */
function buildTemplate(properties: Schema['properties']): object {
  const empty: Readonly<Record<string, unknown>> = { string: '', number: 0, integer: 0, boolean: false, array: [] };
  const fields = Object.entries(properties ?? {}).map(([name, { type, default: value }]) => [
    name,
    value ?? empty[String(type)] ?? (type === 'object' ? {} : null),
  ]);
  return Object.fromEntries(fields);
}
