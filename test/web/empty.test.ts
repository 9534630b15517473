/** What each screen says if it has nothing to show: that there is nothing, and what to do next. */
import { beforeAll, describe, expect, it } from 'vitest';
import { DeploymentClient } from '../api/control-plane/deployment-client.ts';
import { askRunlake } from '../ask-runlake.ts';
import { folderForSuite } from '../folders.ts';
import { forSuite } from '../for-suite.ts';
import { agentSource } from './agent-source.ts';
import { eventually, expectAccessible, openPages, startSignedIn } from './browser.ts';
import { buildTrace, sendRuns } from './send-traces.ts';

const exportRoot = folderForSuite();

const signedIn = forSuite(() =>
  startSignedIn(undefined, {
    environment: { RUNLAKE_LOCAL_EXPORT_ROOT: exportRoot, RUNLAKE_SHARE_PUBLIC_PROMPTS: 'true' },
  }),
);
const page = openPages(signedIn);

/** A screen, what it says, and what the viewer can do. */
type Row = readonly [name: string, path: () => string, says: string, next: string | RegExp];

async function expectEmpty([, path, says, next]: Row): Promise<void> {
  await page.goto(path());
  const main = page.getByRole('main');
  await main.getByText(says).first().waitFor();
  await main.getByText(next).filter({ visible: true }).first().waitFor();
  await eventually(() => main.getByRole('status').getByText('Loading').count()).toBe(0);
  expect(await main.getByRole('alert').count()).toBe(0);
  await expectAccessible(page);
}

describe('an empty installation', () => {
  const rows: readonly Row[] = [
    ['home', () => '/', 'This workspace has no tracing projects yet.', 'Run these lines'],
    ['projects', () => '/projects', 'This workspace has no tracing projects yet.', 'Run these lines'],
    ['datasets', () => '/datasets', 'There are no datasets yet', 'client.createDataset(name)'],
    ['prompts', () => '/prompts', 'There are no prompts yet', 'client.pushPrompt(name, …)'],
    ['public prompts', () => '/prompts?public=true', 'There are no public prompts', 'can publish prompts'],
    ['queues', () => '/queues', 'There are no annotation queues', 'Create one above.'],
    ['agents', () => '/agents', 'This workspace has no deployments', 'runlake deploy path/to/folder'],
    ['exports', () => '/exports', 'No exports', 'Start with a new export.'],
    ['schedules', () => '/exports?tab=Schedules', 'No schedules', 'in the form of a new export'],
    ['destinations', () => '/exports?tab=Destinations', 'No destinations', 'Create one above.'],
    ['new export', () => '/exports/new', 'No destinations', 'Create a destination first.'],
    ['usage', () => '/usage', 'No traces in this range', 'Choose a longer range, or send a trace'],
    ['usage of a year', () => '/usage?range=12m', 'No traces in this range', 'Send a trace'],
    [
      'keys',
      () => '/settings?tab=Keys',
      'This workspace has no keys of its own',
      'Create one for this workspace above.',
    ],
    [
      'retention',
      () => '/settings?tab=Retention',
      'This workspace has no projects',
      'The first trace of a project creates',
    ],
    ['dead-letter queue', () => '/system', 'The queue is empty', 'every accepted record was stored'],
  ];
  it.each(rows.map((row) => [row[0], row] as const))('%s', async (_name, row) => expectEmpty(row));
});

describe('what is empty', () => {
  const ids: Record<string, string> = {};
  beforeAll(async () => {
    const { url, apiKey } = signedIn.runlake;
    const post = (path: string, body: object) => askRunlake(signedIn.runlake, path, { body });
    const [run] = buildTrace('bare', Date.now() - 1000, { name: 'bare run', until: 10 });
    await sendRuns(url, apiKey, run ? [run] : []);
    ids.run = run?.id ?? '';
    ids.project = (await post('/sessions', { name: 'unused' })).id;
    ids.dataset = (await post('/datasets', { name: 'no examples' })).id;
    ids.experiment = (await post('/sessions', { name: 'no runs', reference_dataset_id: ids.dataset })).id;
    ids.dataset2 = (await post('/datasets', { name: 'no experiments' })).id;
    await post('/repos', { repo_handle: 'no-commits', is_public: false });
    ids.queue = (await post('/annotation-queues', { name: 'no runs' })).id;
    const lake = { destination_type: 'local', display_name: 'lake', config: { prefix: 'traces' } };
    const { id: destination } = await post('/bulk-exports/destinations', lake);
    ids.schedule = (
      await post('/bulk-exports', {
        ...{ bulk_export_destination_id: destination, session_id: ids.project, interval_hours: 24 },
        start_time: new Date(Date.now() + 3_600_000).toISOString(),
      })
    ).id;
    const client = new DeploymentClient(url, apiKey);
    const { id, latest_revision_id } = await client.deploy('idle', agentSource);
    await client.awaitDeployed(id, latest_revision_id);
    ids.deployment = id;
  });
  const project = (more = '') => `/projects/${ids.project}${more}`;
  const dataset = (more: string) => `/datasets/${ids.dataset2}${more}`;
  const agent = (more: string) => `/agents/${ids.deployment}?${more}`;

  const rows: readonly Row[] = [
    [
      'projects that are searched',
      () => '/projects?name=zzz',
      'No project has this name',
      'Change or clear the search.',
    ],
    ['a project', () => project('?range=all'), 'This project has no traces', 'LANGSMITH_PROJECT=unused'],
    ['a time range', () => project(), 'No runs match', 'Widen the time range.'],
    [
      'a filter',
      () => project(`?range=all&filter=${encodeURIComponent('eq(status, "error")')}`),
      'No runs match',
      'Remove a filter.',
    ],
    ['threads', () => project('/threads'), 'No threads match', 'thread_id'],
    ['a thread', () => project('/threads?thread=t'), 'This thread has no turns', 'or not have arrived yet'],
    ['a run', () => `/runs/${ids.run}`, 'The run has no inputs.', 'The run has no outputs.'],
    ['feedback', () => `/runs/${ids.run}?tab=Feedback`, 'No feedback on this run', 'Add some above'],
    [
      'datasets that are searched',
      () => '/datasets?name=zzz',
      'No dataset has this name',
      'Change or clear the search.',
    ],
    ['examples', () => dataset(''), 'The dataset has no examples yet', 'Add one here'],
    ['versions', () => dataset('?tab=Versions'), 'The dataset has no versions yet', 'Each write to its examples'],
    ['experiments', () => dataset('?tab=Experiments'), 'There are no experiments on this dataset', 'evaluate(…)'],
    ['a comparison of nothing', () => dataset('/compare'), 'No experiments are chosen', 'Choose those to compare.'],
    [
      'a comparison without examples',
      () => `/datasets/${ids.dataset}/compare?selectedSessions=${ids.experiment}`,
      'The dataset has no examples',
      'Add examples to the dataset first.',
    ],
    ['prompts that are searched', () => '/prompts?text=zzz', 'Nothing matches', 'Change or clear the search.'],
    ['a prompt', () => '/prompts/no-commits', 'There are no commits yet', "client.pushPrompt('no-commits', …)"],
    ['a queue', () => `/queues/${ids.queue}`, 'Nothing is left to review', 'Add runs to the queue from a trace.'],
    ['a schedule', () => `/exports/${ids.schedule}`, 'No exports yet', 'after its interval has ended'],
    [
      'deployments that are searched',
      () => '/agents?name=zzz',
      'No deployment has this name',
      'Change or clear the search.',
    ],
    ['threads of a deployment', () => agent('tab=Threads'), 'There are no threads yet', 'Open the playground'],
    [
      'threads that are searched',
      () => agent('tab=Threads&find=a%3Db'),
      'No thread matches',
      'Change or remove the filter.',
    ],
  ];
  it.each(rows.map((row) => [row[0], row] as const))('%s', async (_name, row) => expectEmpty(row));

  it('the audit log of a filter', async () => {
    await page.goto('/settings?tab=Audit%20log');
    await page.getByLabel('Actor').fill('nobody@example.com');
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.getByText('No entries').waitFor();
    await page.getByText('Change or clear the filter.').waitFor();
    await expectAccessible(page);
  });

  it('a workspace that has only experiments, and opens its first trace', async () => {
    const ask = (path: string, body: object, workspaceId?: string) =>
      askRunlake(signedIn.runlake, path, { body, workspaceId });
    const { id: workspace } = await ask('/workspaces', { display_name: 'evaluations' });
    const { id: dataset } = await ask('/datasets', { name: 'cases' }, workspace);
    await ask('/sessions', { name: 'experiment', reference_dataset_id: dataset }, workspace);
    const evaluated = buildTrace('experiment', Date.now() - 1000, { name: 'evaluated', until: 10 });
    await ask('/runs/batch', { post: evaluated }, workspace);
    await page.reload();
    await page.goto('/');
    const chosen = page.getByRole('combobox', { name: 'Workspace' });
    const own = await chosen.inputValue();
    await chosen.selectOption('evaluations');
    await page.getByText('This workspace has no tracing projects yet.').waitFor();
    await page.getByText('Waiting for the first trace').waitFor();
    // A second reading of the screen would have opened the trace of the experiment.
    await page.waitForResponse((response) => response.url().includes('/api/v1/sessions?'));
    await page.waitForResponse((response) => response.url().includes('/api/v1/sessions?'));
    expect(new URL(page.url()).pathname).toBe('/projects');
    const [run] = buildTrace('program', Date.now() - 1000, { name: 'first', until: 10 });
    await ask('/runs/batch', { post: [run] }, workspace);
    await page.waitForURL(`**/runs/${run?.id}*`);
    await chosen.selectOption(own);
  });

  it('a thread of a deployment', async () => {
    const client = new DeploymentClient(signedIn.runlake.url, signedIn.runlake.apiKey);
    const { thread_id } = (await client.ask('POST', '/deployments/idle/threads', {})).body as { thread_id: string };
    await expectEmpty([
      'a thread',
      () => agent(`tab=Threads&thread=${thread_id}`),
      'This thread has no state yet',
      'Run one in the playground.',
    ]);
  });
});
