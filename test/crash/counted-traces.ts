interface Server {
  readonly url: string;
  readonly apiKey: string;
}

/**
 * Returns the number of traces that the main API at `url` reports, over all time, for the first workspace of the key.
 */
export async function countedTraces(server: Server): Promise<number> {
  const usage = await readUsage<{ traces: number }>(server, 'traces');
  return usage.reduce((sum, { traces }) => sum + traces, 0);
}

/** Returns the numbers of graph runs and executed nodes, as {@link countedTraces}. */
export async function countedAgentRuns(server: Server): Promise<{ runs: number; nodes: number }> {
  const usage = await readUsage<{ agent_runs: number; nodes_executed: number }>(server, 'langsmith_deployments');
  return {
    runs: usage.reduce((sum, { agent_runs }) => sum + agent_runs, 0),
    nodes: usage.reduce((sum, { nodes_executed }) => sum + nodes_executed, 0),
  };
}

async function readUsage<Row>({ url, apiKey }: Server, kind: string): Promise<Row[]> {
  const headers = { 'x-api-key': apiKey };
  const workspaces = (await (await fetch(`${url}/workspaces`, { headers })).json()) as { id: string }[];
  const range = 'start_time=2020-01-01&end_time=2100-01-01';
  const query = `${range}&kind=${kind}&workspace_ids=${workspaces[0]?.id}`;
  const path = `/api/v1/orgs/current/billing/granular-usage?${query}`;
  const { usage } = (await (await fetch(`${url}${path}`, { headers })).json()) as { usage: Row[] };
  return usage;
}
