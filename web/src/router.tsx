import type { QueryClient } from '@tanstack/react-query';
import {
  createRootRouteWithContext,
  createRoute,
  createRouter,
  Link,
  lazyRouteComponent,
  notFound,
  Outlet,
  redirect,
} from '@tanstack/react-router';
import { ApiError } from './api/client.ts';
import { watchReturns } from './api/read-time.ts';
import { openWorkspace, sessionQuery } from './api/session.ts';
import { EmptyState, ErrorState, LoadingState } from './components/states.tsx';
import { readTexts } from './read-search.ts';
import { readDeploymentSearch } from './screens/agents/search.ts';
import { readCompareSearch, readDatasetSearch } from './screens/datasets/search.ts';
import { readExportSearch, readExportsSearch, readNewExportSearch } from './screens/exports/search.ts';
import { readPromptSearch, readPromptsSearch } from './screens/prompts/search.ts';
import { readThreadsSearch } from './screens/threads/search.ts';
import { readTracesSearch } from './screens/traces/search.ts';
import { readUsageSearch } from './screens/usage/search.ts';
import { Shell } from './shell.tsx';

const rootRoute = createRootRouteWithContext<{ readonly queries: QueryClient }>()({
  component: Outlet,
  notFoundComponent: () => (
    <main>
      <EmptyState isPage title="There is no such page">
        <p>Check the address.</p>
        <Link to="/" className="button">
          Go to the start
        </Link>
      </EmptyState>
    </main>
  ),
});
/** Search parameters of a trace: the tab of the run and, of a shared trace, the selected run. */
const readTraceSearch = readTexts('tab', 'run');
const uuidPattern = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/i;

const signIn = createRoute({
  getParentRoute: () => rootRoute,
  path: '/signin',
  validateSearch: readTexts('to', 'error'),
  component: lazyRouteComponent(() => import('./screens/sign-in.tsx'), 'SignIn'),
});
const sharedTrace = createRoute({
  getParentRoute: () => rootRoute,
  path: '/public/$shareToken/r',
  validateSearch: readTraceSearch,
  component: lazyRouteComponent(() => import('./screens/trace/shared-trace.tsx'), 'SharedTrace'),
});
const sharedDataset = createRoute({
  getParentRoute: () => rootRoute,
  path: '/public/$shareToken/d',
  validateSearch: readTexts('example'),
  component: lazyRouteComponent(() => import('./screens/datasets/shared-dataset.tsx'), 'SharedDataset'),
});
const shell = createRoute({
  getParentRoute: () => rootRoute,
  id: 'shell',
  component: Shell,
  beforeLoad: async ({ context, location, params }) => {
    if ((await context.queries.ensureQueryData(sessionQuery)) === null)
      throw redirect({ to: '/signin', search: location.href === '/' ? {} : { to: location.href }, replace: true });
    // The API would refuse an address with a mistyped id in words about its parameters.
    for (const [name, value] of Object.entries<string>(params))
      if (name.endsWith('Id') && name !== 'tenantId' && !uuidPattern.test(value)) throw notFound();
  },
});
/** Returns the options of a route in the shell whose screen is shown to sessions with these permissions. */
const buildScreenOptions = <const Path extends string>(path: Path, ...permissions: readonly string[]) => ({
  getParentRoute: () => shell,
  path,
  staticData: { permissions },
});
const home = createRoute({
  ...buildScreenOptions('/', 'projects:read'),
  component: lazyRouteComponent(() => import('./screens/first-start.tsx'), 'Home'),
});
const projects = createRoute({
  ...buildScreenOptions('/projects', 'projects:read'),
  validateSearch: readTexts('name'),
  component: lazyRouteComponent(() => import('./screens/projects.tsx'), 'Projects'),
});
const traces = createRoute({
  ...buildScreenOptions('/projects/$projectId', 'runs:read'),
  validateSearch: readTracesSearch,
  component: lazyRouteComponent(() => import('./screens/traces/traces.tsx'), 'Traces'),
});
const threads = createRoute({
  ...buildScreenOptions('/projects/$projectId/threads', 'runs:read'),
  validateSearch: readThreadsSearch,
  component: lazyRouteComponent(() => import('./screens/threads/threads.tsx'), 'Threads'),
});
const run = createRoute({
  ...buildScreenOptions('/runs/$runId', 'runs:read'),
  validateSearch: readTraceSearch,
  component: lazyRouteComponent(() => import('./screens/trace/trace.tsx'), 'Trace'),
});
const projectRun = createRoute({
  getParentRoute: () => shell,
  path: '/projects/$projectId/runs/$runId',
  beforeLoad: ({ params }) => {
    throw redirect({ to: '/runs/$runId', params: { runId: params.runId }, replace: true });
  },
});
/** Targets of links that the SDKs build. They name the workspace. */
const sdkLinks = createRoute({
  getParentRoute: () => shell,
  path: '/o/$tenantId',
  beforeLoad: ({ context, params }) => openWorkspace(context.queries, params.tenantId),
});
const sdkProjectLink = createRoute({
  getParentRoute: () => sdkLinks,
  path: '/projects/p/$projectId',
  beforeLoad: ({ params: { projectId } }) => {
    throw redirect({ to: '/projects/$projectId', params: { projectId }, replace: true });
  },
});
const sdkRunLink = createRoute({
  getParentRoute: () => sdkLinks,
  path: '/projects/p/$projectId/r/$runId',
  beforeLoad: ({ params }) => {
    throw redirect({ to: '/runs/$runId', params: { runId: params.runId }, replace: true });
  },
});
const queues = createRoute({
  ...buildScreenOptions('/queues', 'annotation-queues:read'),
  component: lazyRouteComponent(() => import('./screens/queues/queues.tsx'), 'Queues'),
});
const queue = createRoute({
  ...buildScreenOptions('/queues/$queueId', 'annotation-queues:read', 'runs:read'),
  validateSearch: readTexts('item', 'tab'),
  component: lazyRouteComponent(() => import('./screens/queues/queue.tsx'), 'AnnotationQueue'),
});
const usage = createRoute({
  ...buildScreenOptions('/usage', 'organization:read'),
  validateSearch: readUsageSearch,
  component: lazyRouteComponent(() => import('./screens/usage/usage.tsx'), 'Usage'),
});
const datasets = createRoute({
  ...buildScreenOptions('/datasets', 'datasets:read'),
  validateSearch: readTexts('name'),
  component: lazyRouteComponent(() => import('./screens/datasets/datasets.tsx'), 'Datasets'),
});
const dataset = createRoute({
  ...buildScreenOptions('/datasets/$datasetId', 'datasets:read'),
  validateSearch: readDatasetSearch,
  component: lazyRouteComponent(() => import('./screens/datasets/dataset.tsx'), 'Dataset'),
});
const compare = createRoute({
  ...buildScreenOptions('/datasets/$datasetId/compare', 'datasets:read', 'runs:read'),
  validateSearch: readCompareSearch,
  component: lazyRouteComponent(() => import('./screens/datasets/compare.tsx'), 'Compare'),
});
const sdkDatasetLink = createRoute({
  getParentRoute: () => sdkLinks,
  path: '/datasets/$datasetId',
  beforeLoad: ({ params: { datasetId } }) => {
    throw redirect({ to: '/datasets/$datasetId', params: { datasetId }, replace: true });
  },
});
const sdkExampleLink = createRoute({
  getParentRoute: () => sdkLinks,
  path: '/datasets/$datasetId/e/$exampleId',
  beforeLoad: ({ params: { datasetId, exampleId: example } }) => {
    throw redirect({ to: '/datasets/$datasetId', params: { datasetId }, search: { example }, replace: true });
  },
});
const sdkCompareLink = createRoute({
  getParentRoute: () => sdkLinks,
  path: '/datasets/$datasetId/compare',
  validateSearch: readCompareSearch,
  beforeLoad: ({ params: { datasetId }, search }) => {
    throw redirect({ to: '/datasets/$datasetId/compare', params: { datasetId }, search, replace: true });
  },
});
const prompts = createRoute({
  ...buildScreenOptions('/prompts', 'prompts:read'),
  validateSearch: readPromptsSearch,
  component: lazyRouteComponent(() => import('./screens/prompts/prompts.tsx'), 'Prompts'),
});
const promptOptions = {
  validateSearch: readPromptSearch,
  component: lazyRouteComponent(() => import('./screens/prompts/prompt.tsx'), 'Prompt'),
};
const prompt = createRoute({
  ...buildScreenOptions('/prompts/$repo', 'prompts:read'),
  ...promptOptions,
});
/** The SDKs link to commits by the first characters of their hash. */
const promptCommit = createRoute({
  ...buildScreenOptions('/prompts/$repo/$commit', 'prompts:read'),
  ...promptOptions,
});
/** The SDKs link to public prompts of other workspaces. */
const publicPrompt = createRoute({
  ...buildScreenOptions('/hub/$owner/$repo', 'prompts:read'),
  ...promptOptions,
});
const publicPromptCommit = createRoute({
  ...buildScreenOptions('/hub/$owner/$repo/$commit', 'prompts:read'),
  ...promptOptions,
});
/** The SDKs link to commits of agents and skills. */
const sdkDirectoryCommitLink = createRoute({
  getParentRoute: () => shell,
  path: '/context/$repo/$commit',
  beforeLoad: ({ params: { repo, commit } }) => {
    throw redirect({ to: '/prompts/$repo/$commit', params: { repo, commit }, replace: true });
  },
});

const agents = createRoute({
  ...buildScreenOptions('/agents', 'deployments:read'),
  validateSearch: readTexts('name'),
  component: lazyRouteComponent(() => import('./screens/agents/agents.tsx'), 'Agents'),
});
const deployment = createRoute({
  ...buildScreenOptions('/agents/$deploymentId', 'deployments:read'),
  validateSearch: readDeploymentSearch,
  component: lazyRouteComponent(() => import('./screens/agents/deployment.tsx'), 'DeploymentScreen'),
});
const exports = createRoute({
  ...buildScreenOptions('/exports', 'bulk-exports:read'),
  validateSearch: readExportsSearch,
  component: lazyRouteComponent(() => import('./screens/exports/exports.tsx'), 'Exports'),
});
const newExport = createRoute({
  ...buildScreenOptions('/exports/new', 'bulk-exports:manage'),
  validateSearch: readNewExportSearch,
  component: lazyRouteComponent(() => import('./screens/exports/new-export.tsx'), 'NewExport'),
});
const exportDetail = createRoute({
  ...buildScreenOptions('/exports/$exportId', 'bulk-exports:read'),
  validateSearch: readExportSearch,
  component: lazyRouteComponent(() => import('./screens/exports/export-detail.tsx'), 'ExportDetail'),
});

const settings = createRoute({
  getParentRoute: () => shell,
  path: '/settings',
  validateSearch: readTexts('tab'),
  component: lazyRouteComponent(() => import('./screens/settings/settings.tsx'), 'Settings'),
});
const system = createRoute({
  ...buildScreenOptions('/system', 'organizations:manage'),
  component: lazyRouteComponent(() => import('./screens/system/system.tsx'), 'System'),
});

const routeTree = rootRoute.addChildren([
  signIn,
  sharedTrace,
  sharedDataset,
  shell.addChildren([
    home,
    projects,
    traces,
    threads,
    run,
    projectRun,
    sdkLinks.addChildren([sdkProjectLink, sdkRunLink, sdkDatasetLink, sdkExampleLink, sdkCompareLink]),
    datasets,
    dataset,
    compare,
    prompts,
    prompt,
    promptCommit,
    publicPrompt,
    publicPromptCommit,
    sdkDirectoryCommitLink,
    queues,
    queue,
    agents,
    deployment,
    exports,
    newExport,
    exportDetail,
    usage,
    settings,
    system,
  ]),
]);

export function createAppRouter(queries: QueryClient) {
  const router = createRouter({
    routeTree,
    context: { queries },
    defaultPreload: 'intent',
    defaultPendingComponent: () => <LoadingState isPage />,
    // A part of the dashboard that did not load, for example after an upgrade, loads only in a new page.
    defaultErrorComponent: ({ error, reset }) => (
      <ErrorState isPage error={error} onRetry={error instanceof ApiError ? reset : () => window.location.reload()} />
    ),
    scrollRestoration: true,
  });
  watchReturns(router.history);
  return router;
}

declare module '@tanstack/react-router' {
  interface Register {
    readonly router: ReturnType<typeof createAppRouter>;
  }
  interface StaticDataRouteOption {
    /** Permissions without which the screen of the route is not shown. */
    readonly permissions?: readonly string[];
  }
}
