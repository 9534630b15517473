import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { readFrom } from '../../api/client.ts';
import { CopyButton } from '../../components/copy-button.tsx';
import { Crumb } from '../../components/crumb.tsx';
import { Heading } from '../../components/heading.tsx';
import { NoData, Permitted } from '../../components/states.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { Value } from '../../components/text.tsx';
import { AgentAccess } from './agent-access.tsx';
import type { Deployment } from './agents.tsx';
import { Assistants } from './assistants.tsx';
import { DeploymentSettings } from './deployment-settings.tsx';
import { Playground } from './playground.tsx';
import { Revisions } from './revisions.tsx';
import { type DeploymentTab, deploymentTabs } from './search.ts';
import { Threads } from './threads.tsx';
import { useDeploymentSearch } from './use-deployment-search.ts';
import '../trace/trace.css';
import './agents.css';

const route = getRouteApi('/shell/agents/$deploymentId');

export function DeploymentScreen() {
  const { deploymentId } = route.useParams();
  return <DeploymentView key={deploymentId} id={deploymentId} />;
}

function DeploymentView({ id }: { readonly id: string }) {
  const { search, change } = useDeploymentSearch();
  const deployment = useQuery({
    queryKey: ['deployment', id],
    ...readFrom('get', '/api/v2/deployments/{deployment_id}', { path: { deployment_id: id } }),
    refetchInterval: ({ state }) =>
      state.data && state.data.active_revision_id === state.data.latest_revision_id ? 15_000 : 2_000,
  });
  const { data } = deployment;
  if (data === undefined) return <NoData query={deployment} isPage label="Loading the deployment" />;
  const selected = search.tab ?? 'Revisions';
  const address = String(data.source_config.custom_url ?? '');
  return (
    <>
      <header className="page-head">
        <Crumb to="/agents" label="Agents" />
        <Heading text={data.name} />
        {data.status === 'AWAITING_DELETE' && <span className="badge">is being deleted</span>}
        {deployment.error && <span className="error-text">Not up to date: {deployment.error.message}</span>}
        <span className="spacer" />
        <span className="agents-address mono">
          <Value text={address} />
        </span>
        <CopyButton label="Copy the address" text={() => address} />
        {data.tracing_project_id && (
          <Link to="/projects/$projectId" params={{ projectId: data.tracing_project_id }} className="button">
            Traces
          </Link>
        )}
      </header>
      <div className="agents">
        <Tabs label="Deployment" tabs={deploymentTabs} selected={selected} onSelect={(tab) => change({ tab }, true)}>
          <TabContent deployment={data} tab={selected} />
        </Tabs>
      </div>
    </>
  );
}

const agentTabs = { Assistants, Threads, Playground } as const;

function TabContent({ deployment, tab }: { readonly deployment: Deployment; readonly tab: DeploymentTab }) {
  if (tab === 'Revisions') return <Revisions deployment={deployment} />;
  if (tab === 'Settings') return <DeploymentSettings deployment={deployment} />;
  const Content = agentTabs[tab];
  const { id, source_config, active_revision_id } = deployment;
  const [, slug] = /\/deployments\/([\w-]+)$/.exec(String(source_config.custom_url ?? '')) ?? [];
  return (
    <Permitted permission="agents:read">
      <AgentAccess deployment={{ id, slug, isServing: active_revision_id !== null }}>
        <Content />
      </AgentAccess>
    </Permitted>
  );
}
