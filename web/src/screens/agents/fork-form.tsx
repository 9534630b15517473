import type { ThreadState } from '@langchain/langgraph-sdk';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { Button, SubmitButton } from '../../components/button.tsx';
import { Select } from '../../components/select.tsx';
import { Problem } from '../../components/states.tsx';
import { parseExact } from '../../components/values/exact-json.ts';
import { useAgentClient } from './agent-client.ts';
import { useAssistantOfThread, useGraph } from './agent-queries.ts';
import { useDeploymentSearch } from './use-deployment-search.ts';

/** Forks a thread at a checkpoint: by an update of the state, or by a run that starts there. */
export function ForkForm({
  threadId,
  state,
  isLatest,
}: {
  readonly threadId: string;
  readonly state: ThreadState;
  readonly isLatest: boolean;
}) {
  const client = useAgentClient();
  const queries = useQueryClient();
  const { change } = useDeploymentSearch();
  const assistantId = useAssistantOfThread(threadId);
  const graph = useGraph(assistantId);
  const [values, setValues] = useState('{}');
  const [problem, setProblem] = useState<string>();
  const checkpointId = state.checkpoint?.checkpoint_id ?? undefined;
  const update = useMutation({
    mutationFn: (body: object) =>
      client.request<{ checkpoint: { checkpoint_id: string } }>('post', `/threads/${threadId}/state`, { body }),
    onSuccess: async ({ checkpoint }) => {
      await queries.invalidateQueries({ queryKey: [...client.key, 'thread', threadId] });
      change({ checkpoint: checkpoint.checkpoint_id, compare: checkpointId }, true);
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const asNode = String(new FormData(event.currentTarget).get('node'));
    try {
      const parsed = parseExact(values);
      setProblem(undefined);
      update.mutate({ values: parsed, checkpoint_id: checkpointId, ...(asNode !== '' && { as_node: asNode }) });
    } catch (error) {
      setProblem(`The values are not JSON: ${(error as Error).message}`);
    }
  };
  const nodes = graph.data?.nodes.map(({ id }) => String(id)).filter((id) => id !== '__end__') ?? [];
  return (
    <details>
      <summary>{isLatest ? 'Change the state' : 'Fork here'}</summary>
      <form className="stack agents-fork" onSubmit={submit} aria-label="Fork">
        <label className="field">
          Values, as a node would return them
          <textarea
            className="input mono"
            rows={4}
            spellCheck={false}
            value={values}
            onChange={({ target }) => setValues(target.value)}
          />
        </label>
        <label className="field">
          As node
          <Select
            name="node"
            defaultValue=""
            options={[['', 'the node that ran last'], ...nodes.map((id) => [id, id] as const)]}
          />
        </label>
        <Problem message={problem ?? update.error?.message} />
        <div className="row wrap">
          <SubmitButton disabled={update.isPending}>Update the state</SubmitButton>
          <Button onClick={() => change({ tab: 'Playground', checkpoint: checkpointId, assistant: assistantId })}>
            Run from here
          </Button>
        </div>
      </form>
    </details>
  );
}
