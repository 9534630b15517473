import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { describeLimit, findDataset, findProjectId, maxLimit, type StoredRecord } from './find-named.ts';
import type { MainApi } from './main-api.ts';
import { flag, integer, text, time, uuid } from './parameters.ts';
import { defineTool } from './tool.ts';

export const listProjects = defineTool({
  name: 'list_projects',
  title: 'List projects',
  description:
    'List tracing projects, newest first: each groups the traces of one application. Returns names and ids; more_info=true returns ' +
    'everything that is stored about a project. Experiments are listed only for a dataset; for their results, use list_experiments.',
  parameters: {
    limit: integer({ description: 'Maximum number of projects; more than 100 count as 100.', minimum: 1 }).default(5),
    project_name: text({ description: 'Only projects whose name contains this text, ignoring case.' }).optional(),
    more_info: flag({ description: 'Return all fields.' }).default(false, 'false'),
    reference_dataset_id: uuid({ description: 'Only projects that belong to this dataset.' }).optional(),
    reference_dataset_name: text({ description: 'As reference_dataset_id, by name.' }).optional(),
  },
  output: { projects: { type: 'array', items: { type: 'object' } } },
  run: async (values, { api }) => {
    const { reference_dataset_id: id, reference_dataset_name: name } = values;
    const dataset = await findReferenceDataset(api, { id, name });
    const projects = (await api.get('/sessions', {
      limit: Math.min(values.limit, maxLimit),
      name_contains: values.project_name,
      // The projects of a dataset are its experiments.
      ...(dataset === undefined ? { reference_free: true } : { reference_dataset: dataset }),
    })) as StoredRecord[];
    const isWhole = values.more_info || (id !== undefined && name !== undefined);
    return { projects: isWhole ? projects : projects.map(summarise), ...describeLimit(values.limit) };
  },
});

function summarise(project: StoredRecord): StoredRecord {
  return { name: project.name, project_id: project.id, ...findDeployment(project) };
}

async function findReferenceDataset(
  api: MainApi,
  dataset: { readonly id: string | undefined; readonly name: string | undefined },
): Promise<string | undefined> {
  if (dataset.id !== undefined || dataset.name === undefined) return dataset.id;
  return (await findDataset(api, dataset)).id as string;
}

/** The first `deployment_id` in the project, searched level by level. */
function findDeployment(project: StoredRecord): { readonly agent_deployment_id?: unknown } {
  for (let level: StoredRecord[] = [project]; level.length > 0; level = level.flatMap(listNested)) {
    for (const { deployment_id: id } of level) if (id) return { agent_deployment_id: id };
  }
  return {};
}

function listNested(record: StoredRecord): StoredRecord[] {
  return Object.values(record).filter((value) => typeof value === 'object' && value !== null) as StoredRecord[];
}

const experimentCosts = ['total_cost', 'prompt_cost', 'completion_cost'] as const;

export const listExperiments = defineTool({
  name: 'list_experiments',
  title: 'List experiments',
  description:
    'List the experiments on a dataset, newest first: evaluations of an application on its examples, with latency (seconds), cost and ' +
    'feedback scores. Pass either reference_dataset_id or reference_dataset_name. Use fetch_runs with the name of an experiment as ' +
    'project_name to see its runs.',
  parameters: {
    reference_dataset_id: uuid({ description: 'Id of the dataset.' }).optional(),
    reference_dataset_name: text({ description: 'Exact name of the dataset.' }).optional(),
    limit: integer({ description: 'Maximum number of experiments; more than 100 count as 100.', minimum: 1 }).default(
      5,
    ),
    project_name: text({ description: 'Only experiments whose name contains this text, ignoring case.' }).optional(),
  },
  output: { experiments: { type: 'array', items: { type: 'object' } } },
  run: async (values, { api }) => {
    const { reference_dataset_id: id, reference_dataset_name: name } = values;
    if ((id === undefined) === (name === undefined)) {
      const reason = 'Exactly one of reference_dataset_id and reference_dataset_name must be provided.';
      throw runlakeError('BAD_REQUEST', { reason });
    }
    const experiments = (await api.get('/sessions', {
      limit: Math.min(values.limit, maxLimit),
      name_contains: values.project_name,
      reference_free: false,
      reference_dataset: (await findDataset(api, { id, name })).id as string,
      include_stats: true,
    })) as StoredRecord[];
    return { experiments: experiments.map(summariseExperiment), ...describeLimit(values.limit) };
  },
});

function summariseExperiment(experiment: StoredRecord): StoredRecord {
  const { latency_p50: median, latency_p99: slowest } = experiment;
  return {
    name: experiment.name,
    experiment_id: experiment.id,
    feedback_stats: experiment.feedback_stats ?? null,
    ...(median != null && { latency_p50_seconds: median }),
    ...(slowest != null && { latency_p99_seconds: slowest }),
    ...Object.fromEntries(
      experimentCosts.flatMap((cost) => (experiment[cost] == null ? [] : [[cost, experiment[cost]]])),
    ),
    ...findDeployment(experiment),
  };
}

const statistics = [
  'run_count',
  'latency_p50',
  'latency_p99',
  'first_token_p50',
  'first_token_p99',
  'total_tokens',
  'prompt_tokens',
  'completion_tokens',
  'total_cost',
  'prompt_cost',
  'completion_cost',
  'error_rate',
  'last_run_start_time',
  'feedback_stats',
];

export const getProjectStats = defineTool({
  name: 'get_project_stats',
  title: 'Get statistics of a project',
  description:
    'Get statistics of the runs of a project, without reading them: number of runs, latency (p50 and p99, in seconds), time to the ' +
    'first token, tokens, cost, share of errors, and feedback scores. By default of root runs, one per trace. Restrict them with ' +
    'start_time and filter.',
  parameters: {
    project_name: text({ description: 'Name or id of the project.' }).required(),
    start_time: time({ description: 'Only runs that started at or after this time or date, ISO 8601.' }).optional(),
    is_root: flag({ description: 'true: root runs, one per trace; false: all runs.' }).default(true),
    filter: text({ description: 'Condition on the run, such as eq(run_type, "llm"); see fetch_runs.' }).optional(),
  },
  output: {
    project_id: { type: 'string' },
    stats: { type: 'object', description: 'null: no run has a value.' },
  },
  run: async (values, { api }) => {
    const projectId = await findProjectId(api, values.project_name);
    const stats = await api.post('/runs/stats', {
      session: [projectId],
      start_time: values.start_time,
      filter: values.filter,
      select: statistics,
      ...(values.is_root && { is_root: true }),
    });
    return { project_id: projectId, stats };
  },
});
