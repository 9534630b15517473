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
/** The tabs with the permission that each needs. */
const tabs = {
  Keys: ['api-keys:read', Keys],
  Members: ['organization:read', Members],
  Workspaces: ['workspaces:read', Workspaces],
  Retention: ['projects:read', Retention],
  'Audit log': ['audit-logs:read', AuditLog],
} as const;
const tabNames = Object.keys(tabs) as (keyof typeof tabs)[];

/** Settings of the workspace and the organization. */
export function Settings() {
  const { tab } = route.useSearch();
  const navigate = useNavigate({ from: '/settings' });
  const selected = tabNames.find((each) => each === tab) ?? 'Keys';
  const [permission, Content] = tabs[selected];
  return (
    <>
      <header className="page-head">
        <Heading text="Settings" />
      </header>
      <div className="settings">
        <Tabs
          label="Settings"
          tabs={tabNames}
          selected={selected}
          onSelect={(next) => void navigate({ search: { tab: next }, replace: true })}
        >
          <Permitted permission={permission}>
            <Content />
          </Permitted>
        </Tabs>
      </div>
    </>
  );
}
