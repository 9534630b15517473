import { projectOf } from '../traces/root-run.ts';
import type { Run } from './run.ts';

export interface ShownRun extends Run {
  /** The project that its trace is in. */
  readonly langsmith_session_name: string;
}

/** A run as clients see it. */
export function shownRun(run: Run): ShownRun {
  return { ...run, langsmith_session_name: projectOfRun(run) };
}

/** The project of a run's trace, by what the run itself says: the server writes the graph into its configuration. */
function projectOfRun({ kwargs }: Pick<Run, 'kwargs'>): string {
  return projectOf({ kwargs, graphId: String(kwargs.config.configurable?.graph_id) });
}
