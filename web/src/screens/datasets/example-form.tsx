import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useId, useState } from 'react';
import { fillPath, send } from '../../api/client.ts';
import { Button, SubmitButton } from '../../components/button.tsx';
import { readForm } from '../../components/read-form.ts';
import { useFirstFieldFocus } from '../../components/shortcuts.tsx';
import { Problem } from '../../components/states.tsx';
import { useNewId } from '../../components/use-new-id.ts';
import { formatExact, isJsonObject } from '../../components/values/exact-json.ts';
import { type Example, listSplits, omitSplits } from './example-source.ts';

const fields = ['Inputs', 'Outputs', 'Metadata'] as const;
type Field = (typeof fields)[number];

/** Adds an example, or changes `example`, as JSON. */
export function ExampleForm({
  datasetId,
  example,
  onSaved,
  onCancel,
}: {
  readonly datasetId: string;
  readonly example?: Example;
  readonly onSaved: (id: string) => void;
  readonly onCancel: () => void;
}) {
  const client = useQueryClient();
  const form = useFirstFieldFocus();
  const [problems, setProblems] = useState<Partial<Record<Field, string>>>({});
  const splits = example ? listSplits(example).join(', ') : '';
  const initial: Readonly<Record<Field, string>> = {
    Inputs: formatExact(example?.inputs ?? {}),
    Outputs: example?.outputs ? formatExact(example.outputs) : '',
    Metadata: example ? formatExact(omitSplits(example)) : '',
  };
  const { id: newId, onSettled } = useNewId();
  const save = useMutation({
    mutationFn: async (form: FormData) => {
      const method = example ? 'patch' : 'post';
      await send(method, fillPath('/api/v1/platform/datasets/{dataset_id}/examples', { dataset_id: datasetId }, {}), {
        body: form,
      });
    },
    onSettled,
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    const read = readForm(event);
    const found = Object.fromEntries(
      fields.flatMap((field) => {
        const isRequired = field === 'Inputs' || (field === 'Outputs' && example?.outputs != null);
        const problem = findProblem(read(field), isRequired);
        return problem === undefined ? [] : [[field, problem]];
      }),
    );
    setProblems(found);
    if (Object.keys(found).length > 0) return;
    const id = example?.id ?? newId;
    const splitList = read('splits')
      .split(',')
      .map((each) => each.trim());
    const changesSplits = read('splits') !== splits;
    const main = `{"metadata": ${read('Metadata') || '{}'}${
      changesSplits ? `, "split": ${JSON.stringify(splitList.filter((each) => each !== ''))}` : ''
    }}`;
    save.mutate(buildForm(id, { '': main, '.inputs': read('Inputs'), '.outputs': read('Outputs') }), {
      onSuccess: async () => {
        await client.invalidateQueries({ queryKey: ['dataset', datasetId] });
        onSaved(id);
      },
    });
  };
  return (
    <form
      ref={form}
      className="stack"
      onSubmit={submit}
      aria-label={example ? 'Change the example' : 'Add an example'}
      noValidate
    >
      {fields.map((field) => (
        <JsonField key={field} name={field} initial={initial[field]} problem={problems[field]} />
      ))}
      <label className="field">
        <span>
          Splits <span className="muted">with commas between them</span>
        </span>
        <input className="input" name="splits" defaultValue={splits} placeholder={example ? '' : 'base'} />
      </label>
      <Problem message={save.error?.message} />
      <div className="row">
        <SubmitButton disabled={save.isPending}>{save.isPending ? 'Saving …' : 'Save'}</SubmitButton>
        <Button onClick={onCancel}>Cancel</Button>
      </div>
    </form>
  );
}

function JsonField({
  name,
  initial,
  problem,
}: {
  readonly name: Field;
  readonly initial: string;
  readonly problem: string | undefined;
}) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>
        {name} <span className="muted">as a JSON object</span>
      </label>
      <textarea
        className="input mono"
        id={id}
        name={name}
        rows={Math.min(16, Math.max(4, initial.split('\n').length + 1))}
        defaultValue={initial}
        spellCheck={false}
        aria-invalid={problem !== undefined}
        aria-describedby={problem === undefined ? undefined : `${id}-problem`}
      />
      {problem !== undefined && (
        <span className="error-text" id={`${id}-problem`} role="alert">
          {problem}
        </span>
      )}
    </div>
  );
}

/** Returns the error of the text of a field; undefined if it is a JSON object, or empty and not required. */
function findProblem(text: string, isRequired: boolean): string | undefined {
  if (text === '') return isRequired ? 'Enter a JSON object, such as {}.' : undefined;
  try {
    const value: unknown = JSON.parse(text);
    return isJsonObject(value) ? undefined : 'This is JSON, but not an object. Put it into one, such as {"value": …}.';
  } catch (error) {
    return `This is not JSON: ${error instanceof Error ? error.message : String(error)}`;
  }
}

/** Builds the multipart body: the API stores the JSON of each part as it is written here, with all digits. */
function buildForm(id: string, parts: Readonly<Record<string, string>>): FormData {
  const form = new FormData();
  for (const [suffix, json] of Object.entries(parts))
    if (json !== '') form.append(`${id}${suffix}`, new Blob([json], { type: 'application/json' }));
  return form;
}
