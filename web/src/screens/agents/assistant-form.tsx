import type { Assistant } from '@langchain/langgraph-sdk';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { Button, SubmitButton } from '../../components/button.tsx';
import { readForm } from '../../components/read-form.ts';
import { Select } from '../../components/select.tsx';
import { Problem } from '../../components/states.tsx';
import { formatExact, isJsonObject, parseExact } from '../../components/values/exact-json.ts';
import { useAgentClient } from './agent-client.ts';
import { useDeploymentSearch } from './use-deployment-search.ts';

const objects = { config: 'Configuration', context: 'Context', metadata: 'Metadata' } as const;
type ObjectField = keyof typeof objects;
const fieldNames = Object.keys(objects) as ObjectField[];

const format = (value: unknown) => formatExact(value ?? {});

/** Creates an assistant of one of `graphIds`, or a new version of `assistant`, with the fields that were changed. */
export function AssistantForm({
  assistant,
  graphIds,
  onDone,
}: {
  /** Unset: a new assistant. */
  readonly assistant?: Assistant;
  readonly graphIds: readonly string[];
  readonly onDone: () => void;
}) {
  const client = useAgentClient();
  const queries = useQueryClient();
  const { change } = useDeploymentSearch();
  const [problem, setProblem] = useState<string>();
  const save = useMutation({
    mutationFn: (body: object) =>
      assistant === undefined
        ? client.request<Assistant>('post', '/assistants', { body })
        : client.request<Assistant>('patch', `/assistants/${assistant.assistant_id}`, { body }),
    onSuccess: async ({ assistant_id: id }) => {
      await queries.invalidateQueries({ queryKey: client.key });
      change({ assistant: id }, true);
      onDone();
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    const read = readForm(event);
    const body: Record<string, unknown> = {};
    if (read('name') !== (assistant?.name ?? '')) body.name = read('name');
    if (read('description') !== (assistant?.description ?? '')) body.description = read('description');
    if (read('graph') !== assistant?.graph_id) body.graph_id = read('graph');
    for (const field of fieldNames) {
      if (read(field) === format(assistant?.[field])) continue;
      const value = parseObject(read(field));
      if (value === undefined) return setProblem(`${objects[field]} must be a JSON object, such as {"key": "value"}.`);
      body[field] = value;
    }
    setProblem(undefined);
    save.mutate(body);
  };
  return (
    <form
      className="stack agents-fork"
      onSubmit={submit}
      aria-label={assistant === undefined ? 'New assistant' : 'Change the assistant'}
    >
      <label className="field">
        Name
        <input className="input" name="name" required maxLength={10_000} defaultValue={assistant?.name} />
      </label>
      <label className="field">
        Graph
        <Select
          name="graph"
          defaultValue={assistant?.graph_id ?? graphIds[0]}
          options={graphIds.map((id) => [id, id])}
        />
      </label>
      <label className="field">
        Description
        <input className="input" name="description" maxLength={100_000} defaultValue={assistant?.description ?? ''} />
      </label>
      {fieldNames.map((field) => (
        <label key={field} className="field">
          {objects[field]}
          {field === 'metadata' && assistant !== undefined && ', merged with what there is'}
          <textarea
            className="input mono"
            name={field}
            rows={4}
            spellCheck={false}
            defaultValue={format(assistant?.[field])}
          />
        </label>
      ))}
      <Problem message={problem ?? save.error?.message} />
      <div className="row">
        <SubmitButton disabled={save.isPending}>
          {assistant === undefined ? 'Create the assistant' : 'Save as a new version'}
        </SubmitButton>
        <Button onClick={onDone}>Cancel</Button>
      </div>
    </form>
  );
}

/** Returns the JSON object of a text; undefined if it is none. An empty text is an empty object. */
function parseObject(text: string): object | undefined {
  try {
    const value = parseExact(text === '' ? '{}' : text);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
