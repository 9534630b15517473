import type { Assistant } from '@langchain/langgraph-sdk';
import { useState } from 'react';
import { EmptyState, MoreButton, QueryState } from '../../components/states.tsx';
import { Time, Value } from '../../components/text.tsx';
import { ValueView } from '../../components/values/value-view.tsx';
import { useAssistants, useGraph, useSchemas, useVersions } from './agent-queries.ts';
import { GraphDrawing } from './graph-drawing.tsx';
import { useDeploymentSearch } from './use-deployment-search.ts';

/** The assistants of a deployment: graph, schemas, configuration and versions. */
export function Assistants() {
  const { search, change } = useDeploymentSearch();
  const assistants = useAssistants();
  return (
    <QueryState query={{ ...assistants, data: assistants.data?.pages.flat() }}>
      {(found) => {
        const [first] = found;
        if (first === undefined) return <EmptyState title="This deployment has no assistants" />;
        const shown = found.find(({ assistant_id }) => assistant_id === search.assistant) ?? first;
        return (
          <div className="agents-columns">
            <section className="agents-side" aria-label="Assistants">
              <ul className="agents-list">
                {found.map(({ assistant_id: id, name, graph_id, version }) => (
                  <li key={id} className={id === shown.assistant_id ? 'selected' : ''}>
                    <button
                      type="button"
                      className="agents-item"
                      aria-pressed={id === shown.assistant_id}
                      onClick={() => change({ assistant: id }, true)}
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
            <AssistantDetail key={shown.assistant_id} assistant={shown} />
          </div>
        );
      }}
    </QueryState>
  );
}

function AssistantDetail({ assistant }: { readonly assistant: Assistant }) {
  const { assistant_id: id, name, description, config, context, metadata } = assistant;
  const { change } = useDeploymentSearch();
  const graph = useGraph(id);
  return (
    <div className="agents-detail stack">
      <header className="row wrap">
        <h2>
          <Value text={name} />
        </h2>
        <code className="agents-id muted">{id}</code>
        <span className="spacer" />
        <button type="button" className="button primary" onClick={() => change({ tab: 'Playground', assistant: id })}>
          Open in the playground
        </button>
      </header>
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
      <Versions assistantId={id} current={assistant.version} />
    </div>
  );
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

function Versions({ assistantId, current }: { readonly assistantId: string; readonly current: number }) {
  const [isOpen, setOpen] = useState(false);
  const versions = useVersions(isOpen ? assistantId : undefined);
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>Versions</summary>
      {isOpen && (
        <QueryState query={versions}>
          {(found) => (
            <ol className="agents-history" reversed>
              {found.map(({ version, name, created_at, config, context, metadata }) => (
                <li key={version}>
                  <span className="row wrap">
                    Version {version} <Value text={name} /> <Time at={created_at} />
                    {version === current && <span className="badge">current</span>}
                  </span>
                  <ValueView title={`Configuration of version ${version}`} value={{ config, context, metadata }} />
                </li>
              ))}
            </ol>
          )}
        </QueryState>
      )}
    </details>
  );
}
