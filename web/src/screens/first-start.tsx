import { skipToken, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Navigate } from '@tanstack/react-router';
import { useState } from 'react';
import { call, readFrom } from '../api/client.ts';
import { usePermission, useWorkspaceId } from '../api/session.ts';
import { Button } from '../components/button.tsx';
import { CodeBlock } from '../components/copy-button.tsx';
import { Heading } from '../components/heading.tsx';
import { LoadingState, Problem, QueryState } from '../components/states.tsx';
import { Tabs } from '../components/tabs.tsx';

const pollMs = 2000;

/** Redirects to the projects; if there are none, shows how to send a first trace. */
export function Home() {
  const projects = useQuery({
    queryKey: ['projects', 'first'],
    ...readFrom('get', '/api/v1/sessions', { query: { limit: 1 } }),
    staleTime: 0,
  });
  // A list that was read before the first trace arrived would lead back to that trace.
  if (projects.data?.length === 0 && !projects.isFetchedAfterMount) return <LoadingState isPage />;
  return (
    <QueryState query={projects} isPage>
      {(found) => (found.length > 0 ? <Navigate to="/projects" replace /> : <FirstStart />)}
    </QueryState>
  );
}

/** Shows the code that sends a first trace, and opens that trace when it arrives. */
export function FirstStart() {
  const [language, setLanguage] = useState<Language>('JavaScript');
  // Not in the state of this component: a list of projects that is read anew, such as that of another hour, replaces it.
  const client = useQueryClient();
  const createdKey = ['first-key', useWorkspaceId()];
  const created = useQuery<string>({ queryKey: createdKey, queryFn: skipToken });
  const key = useMutation({
    mutationFn: () => call('post', '/api/v1/api-key', { body: { description: 'First trace' } }),
    onSuccess: ({ key }) => client.setQueryData(createdKey, key),
  });
  const canCreate = usePermission('api-keys:manage');
  const arrived = useQuery({
    queryKey: ['first-trace'],
    queryFn: async ({ signal }) => {
      // Without experiments, whose runs are no traces of programs.
      const [project] = await call('get', '/api/v1/sessions', { query: { limit: 1, reference_free: true }, signal });
      if (project === undefined) return null;
      const body = { session: [project.id], is_root: true, limit: 1, select: ['id' as const] };
      return (await call('post', '/api/v1/runs/query', { body, signal })).runs[0]?.id ?? null;
    },
    refetchInterval: pollMs,
  });
  const runId = arrived.data ?? undefined;
  if (runId !== undefined) return <Navigate to="/runs/$runId" params={{ runId }} />;
  const shownKey = created.data ?? '<your API key>';
  return (
    <div className="page-body first-start stack">
      <Heading text="Send the first trace" />
      <p>This workspace has no tracing projects yet. Run these lines; this page opens the trace when it arrives.</p>
      {canCreate && created.data === undefined && (
        <div className="row wrap">
          <Button kind="primary" disabled={key.isPending} onClick={() => key.mutate()}>
            Create a key for these lines
          </Button>
          <span className="muted">or put in a key that you have.</span>
        </div>
      )}
      {created.data && <p role="status">The key is in the lines below. It is shown only now.</p>}
      <Problem message={key.error?.message} />
      <Tabs label="Language" tabs={languages} selected={language} onSelect={setLanguage}>
        <CodeBlock label={`${language} lines`} code={snippets[language](window.location.origin, shownKey)} />
      </Tabs>
      <p className="muted" role="status">
        {arrived.error ? `Not reached: ${arrived.error.message}` : 'Waiting for the first trace …'}
      </p>
    </div>
  );
}

const languages = ['JavaScript', 'Python', 'OTLP'] as const;
type Language = (typeof languages)[number];

const environment = (url: string, key: string) =>
  `export LANGSMITH_TRACING=true LANGSMITH_ENDPOINT=${url}\nexport LANGSMITH_API_KEY='${key}'\n`;

const snippets: Readonly<Record<Language, (url: string, key: string) => string>> = {
  JavaScript: (url, key) =>
    `${environment(url, key)}npm install langsmith && node --input-type=module -e '
import { traceable } from "langsmith/traceable";
await traceable(async (question) => "Nobody.", { name: "first trace" })("Who is there?");'`,
  Python: (url, key) =>
    `${environment(url, key)}pip install langsmith && python3 -c '
from langsmith import traceable
traceable(lambda question: "Nobody.", name="first trace")("Who is there?")'`,
  OTLP: (url, key) =>
    `export TRACE=$(openssl rand -hex 16) SPAN=$(openssl rand -hex 8) NOW=$(date +%s)000000000
curl '${url}/otel/v1/traces' -H 'x-api-key: ${key}' -H 'content-type: application/json' -d '{"resourceSpans": [{"scopeSpans":
  [{"spans": [{"traceId": "'$TRACE'", "spanId": "'$SPAN'", "name": "first trace", "startTimeUnixNano": "'$NOW'", "endTimeUnixNano": "'$NOW'"}]}]}]}'`,
};
