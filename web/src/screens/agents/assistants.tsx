import type { Assistant } from '@langchain/langgraph-sdk';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { usePermission } from '../../api/session.ts';
import { Button } from '../../components/button.tsx';
import { ConfirmButton } from '../../components/confirm-button.tsx';
import { EmptyState, MoreButton, Problem, QueryState } from '../../components/states.tsx';
import { Time, Value } from '../../components/text.tsx';
import { ValueView } from '../../components/values/value-view.tsx';
import { useAgentClient } from './agent-client.ts';
import { useAssistants, useGraph, useSchemas, useVersions } from './agent-queries.ts';
import { AssistantForm } from './assistant-form.tsx';
import { GraphDrawing } from './graph-drawing.tsx';
import { useDeploymentSearch } from './use-deployment-search.ts';

/** The assistants of a deployment: graph, schemas, configuration and versions. */
export function Assistants() {
  const { search, change } = useDeploymentSearch();
  const assistants = useAssistants();
  const canChange = usePermission('agents:run');
  const [isNew, setNew] = useState(false);
  return (
    <QueryState query={{ ...assistants, data: assistants.data?.pages.flat() }}>
      {(found) => {
        const [first] = found;
        if (first === undefined)
          return (
            <EmptyState title="This deployment has no assistants">Each graph of its langgraph.json has one.</EmptyState>
          );
        // The server has an assistant for each graph.
        const graphIds = [...new Set(found.map(({ graph_id }) => graph_id))].sort();
        const shown = found.find(({ assistant_id }) => assistant_id === search.assistant) ?? first;
        return (
          <div className="agents-columns">
            <section className="agents-side" aria-label="Assistants">
              {canChange && (
                <div className="row agents-actions">
                  <Button onClick={() => setNew(true)}>Create an assistant</Button>
                </div>
              )}
              <ul className="agents-list">
                {found.map(({ assistant_id: id, name, graph_id, version }) => (
                  <li key={id} className={id === shown.assistant_id ? 'selected' : ''}>
                    <button
                      type="button"
                      className="agents-item"
                      aria-pressed={id === shown.assistant_id}
                      onClick={() => {
                        setNew(false);
                        change({ assistant: id }, true);
                      }}
                    >
                      <Value text={name} />
                      <span className="muted row">
                        <Value text={graph_id} /> <span>version {version}</span>
                      </span>
                    </button>
                  </li>
                ))}
              </ul>
              <MoreButton pages={assistants} label="Show more assistants" />
            </section>
            {isNew ? (
              <div className="agents-detail stack">
                <h2>New assistant</h2>
                <AssistantForm graphIds={graphIds} onDone={() => setNew(false)} />
              </div>
            ) : (
              <AssistantDetail key={shown.assistant_id} assistant={shown} graphIds={graphIds} canChange={canChange} />
            )}
          </div>
        );
      }}
    </QueryState>
  );
}

function AssistantDetail({
  assistant,
  graphIds,
  canChange,
}: {
  readonly assistant: Assistant;
  readonly graphIds: readonly string[];
  readonly canChange: boolean;
}) {
  const { assistant_id: id, name, description, config, context, metadata } = assistant;
  const { change } = useDeploymentSearch();
  const graph = useGraph(id);
  const [isChanging, setChanging] = useState(false);
  const remove = useChange(id, () => change({ assistant: undefined }, true));
  return (
    <div className="agents-detail stack">
      <header className="row wrap">
        <h2>
          <Value text={name} />
        </h2>
        <code className="agents-id muted">{id}</code>
        <span className="spacer" />
        <Button kind="primary" onClick={() => change({ tab: 'Playground', assistant: id })}>
          Open in the playground
        </Button>
        {canChange && (
          <>
            <Button aria-expanded={isChanging} onClick={() => setChanging(!isChanging)}>
              Change
            </Button>
            <ConfirmButton
              label="Delete"
              name={`Delete the assistant ${name}`}
              question={`Delete the assistant ${name} with its versions and runs? Threads stay. The assistant of a graph is created again when the server starts.`}
              onConfirm={() => remove.mutate({ method: 'delete', path: '' })}
            />
          </>
        )}
      </header>
      <Problem message={remove.error?.message} />
      {isChanging && (
        <AssistantForm
          key={assistant.version}
          assistant={assistant}
          graphIds={graphIds}
          onDone={() => setChanging(false)}
        />
      )}
      {description && (
        <p>
          <Value text={description} />
        </p>
      )}
      <section aria-label="Graph" className="stack">
        <QueryState query={graph}>{(drawn) => <GraphDrawing graph={drawn} />}</QueryState>
      </section>
      <ValueView title="Configuration" value={{ config, context, metadata }} />
      <Schemas assistantId={id} />
      <Versions assistantId={id} current={assistant.version} canChange={canChange} />
    </div>
  );
}

/** Changes an assistant, and reads what depends on it anew. */
function useChange(assistantId: string, onDone?: () => void) {
  const client = useAgentClient();
  const queries = useQueryClient();
  return useMutation({
    mutationFn: ({ method, path, body }: { method: string; path: string; body?: object }) =>
      client.request(method, `/assistants/${assistantId}${path}`, { body }),
    onSuccess: async () => {
      onDone?.();
      await queries.invalidateQueries({ queryKey: client.key });
    },
  });
}

const schemaNames = {
  input_schema: 'Input',
  output_schema: 'Output',
  state_schema: 'State',
  config_schema: 'Configuration',
  context_schema: 'Context',
} as const;

/** Schemas are read on request, because the server may still be deriving them from types. */
function Schemas({ assistantId }: { readonly assistantId: string }) {
  const [isOpen, setOpen] = useState(false);
  const schemas = useSchemas(isOpen ? assistantId : undefined);
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>Schemas</summary>
      {isOpen && (
        <QueryState query={schemas}>
          {(found) => {
            const given = Object.entries(schemaNames).filter(([key]) => found[key as keyof typeof schemaNames]);
            if (given.length === 0) return <p className="muted">The graph declares none, or they are not known yet.</p>;
            return (
              <div className="stack">
                {given.map(([key, title]) => (
                  <ValueView key={key} title={`${title} schema`} value={found[key as keyof typeof schemaNames]} />
                ))}
              </div>
            );
          }}
        </QueryState>
      )}
    </details>
  );
}

function Versions({
  assistantId,
  current,
  canChange,
}: {
  readonly assistantId: string;
  readonly current: number;
  readonly canChange: boolean;
}) {
  const activate = useChange(assistantId);
  const [isOpen, setOpen] = useState(false);
  const versions = useVersions(isOpen ? assistantId : undefined);
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>Versions</summary>
      {isOpen && (
        <QueryState query={versions}>
          {(found) => (
            <>
              <Problem message={activate.error?.message} />
              <ol className="agents-history" reversed>
                {found.map(({ version, name, created_at, config, context, metadata }) => (
                  <li key={version}>
                    <span className="row wrap">
                      Version {version} <Value text={name} /> <Time at={created_at} />
                      {version === current ? (
                        <span className="badge">current</span>
                      ) : (
                        canChange && (
                          <button
                            type="button"
                            className="chip"
                            disabled={activate.isPending}
                            onClick={() => activate.mutate({ method: 'post', path: '/latest', body: { version } })}
                          >
                            Make version {version} current
                          </button>
                        )
                      )}
                    </span>
                    <ValueView title={`Configuration of version ${version}`} value={{ config, context, metadata }} />
                  </li>
                ))}
              </ol>
            </>
          )}
        </QueryState>
      )}
    </details>
  );
}
