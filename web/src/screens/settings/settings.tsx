import { getRouteApi, useNavigate } from '@tanstack/react-router';
import { Heading } from '../../components/heading.tsx';
import { Permitted } from '../../components/states.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { AuditLog } from './audit-log.tsx';
import { Keys } from './keys.tsx';
import { Members } from './members.tsx';
import { Retention } from './retention.tsx';
import './settings.css';
import { Workspaces } from './workspaces.tsx';

const route = getRouteApi('/shell/settings');
const tabs = ['Keys', 'Members', 'Workspaces', 'Retention', 'Audit log'] as const;

/** Settings of the workspace and the organization. */
export function Settings() {
  const { tab } = route.useSearch();
  const navigate = useNavigate({ from: '/settings' });
  const selected = tabs.find((each) => each === tab) ?? 'Keys';
  return (
    <>
      <header className="page-head">
        <Heading text="Settings" />
      </header>
      <div className="settings">
        <Tabs
          label="Settings"
          tabs={tabs}
          selected={selected}
          onSelect={(next) => void navigate({ search: { tab: next }, replace: true })}
        >
          {selected === 'Keys' && (
            <Permitted permission="api-keys:read" isPage={false}>
              <Keys />
            </Permitted>
          )}
          {selected === 'Members' && (
            <Permitted permission="organization:read" isPage={false}>
              <Members />
            </Permitted>
          )}
          {selected === 'Workspaces' && (
            <Permitted permission="workspaces:read" isPage={false}>
              <Workspaces />
            </Permitted>
          )}
          {selected === 'Retention' && (
            <Permitted permission="projects:read" isPage={false}>
              <Retention />
            </Permitted>
          )}
          {selected === 'Audit log' && (
            <Permitted permission="audit-logs:read" isPage={false}>
              <AuditLog />
            </Permitted>
          )}
        </Tabs>
      </div>
    </>
  );
}
