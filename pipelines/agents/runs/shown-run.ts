import { findProject } from '../traces/root-run.ts';
import type { Run } from './run.ts';

export interface ShownRun extends Run {
  /** Project of the run's trace. */
  readonly langsmith_session_name: string;
}

/** Converts a run to the form that clients receive. */
export function shownRun(run: Run): ShownRun {
  return { ...run, langsmith_session_name: projectOfRun(run) };
}

/** The project of a run's trace. The server has written the graph id into the config of the run. */
function projectOfRun({ kwargs }: Pick<Run, 'kwargs'>): string {
  return findProject({ kwargs, graphId: String(kwargs.config.configurable?.graph_id) });
}
