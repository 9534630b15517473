import { startRunlake } from '../../test/runlake-process.ts';
import type { AgentServer } from './agent-server.ts';
import { agentsAt, untilItAnswers } from './agents-at.ts';
import { runlakeMemoryMib } from './process-tree.ts';

export interface RunlakeAgents extends AgentServer {
  readonly databaseUrl: string;
}

/** Starts a separate `runlake all` on embedded engines with the graph. */
export async function startRunlakeAgents(): Promise<RunlakeAgents> {
  const { environment, url } = await agentsAt();
  const runlake = await startRunlake({ environment });
  try {
    await untilItAnswers(url);
  } catch (error) {
    const output = runlake.output();
    await runlake.remove();
    throw new Error(`The agent server did not respond. Output of Runlake:\n${output}`, { cause: error });
  }
  return {
    url,
    headers: { 'x-api-key': runlake.apiKey },
    databaseUrl: runlake.stores().databaseUrl,
    memoryMib: () => runlakeMemoryMib(runlake.pid),
    end: () => runlake.remove(),
  };
}
