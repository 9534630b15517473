import { useQuery } from '@tanstack/react-query';
import { Link, Outlet, useMatches, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import {
  sessionQuery,
  useExistingWorkspace,
  useSession,
  useSessionChanges,
  useWorkspaceId,
  useWorkspaces,
} from './api/session.ts';
import { Button } from './components/button.tsx';
import { Icon, type IconName } from './components/icon.tsx';
import { Select } from './components/select.tsx';
import { ShortcutList } from './components/shortcuts.tsx';
import { NoPermission, PartProblem, Problem } from './components/states.tsx';
import { Value } from './components/text.tsx';
import { ThemeButton } from './theme.tsx';

interface NavigationItem {
  readonly to:
    | '/projects'
    | '/datasets'
    | '/prompts'
    | '/queues'
    | '/agents'
    | '/exports'
    | '/usage'
    | '/settings'
    | '/system';
  readonly label: string;
  readonly icon: IconName;
  /** Only those with this permission see the link. */
  readonly permission?: string;
}

/** The built screens, in the order of the navigation. */
const items: readonly NavigationItem[] = [
  { to: '/projects', label: 'Projects', icon: 'projects' },
  { to: '/datasets', label: 'Datasets', icon: 'datasets' },
  { to: '/prompts', label: 'Prompts', icon: 'prompts' },
  { to: '/queues', label: 'Queues', icon: 'queues' },
  { to: '/agents', label: 'Agents', icon: 'agents' },
  { to: '/exports', label: 'Exports', icon: 'exports' },
  { to: '/usage', label: 'Usage', icon: 'usage' },
  { to: '/settings', label: 'Settings', icon: 'settings' },
  { to: '/system', label: 'System', icon: 'system', permission: 'organizations:manage' },
];

/** Frame of all screens that need a session. The route leads to the sign-in screen if there is none. */
export function Shell() {
  const session = useQuery(sessionQuery);
  return session.data ? <Frame /> : null;
}

function Frame() {
  const { organization, permissions } = useSession();
  const [isOpen, setOpen] = useState(false);
  const workspaceId = useWorkspaceId();
  useExistingWorkspace();
  return (
    <div className="shell">
      <a className="skip button" href="#main">
        Skip to the content
      </a>
      <header className="side">
        <Link to="/" className="brand">
          <Brand />
        </Link>
        <div className="workspace" title={organization.display_name}>
          <WorkspaceMenu onChoose={() => setOpen(false)} />
        </div>
        <button
          type="button"
          className="button quiet icon nav-toggle"
          aria-label="Navigation"
          aria-expanded={isOpen}
          onClick={() => setOpen(!isOpen)}
        >
          <Icon name="menu" />
        </button>
        <nav className={isOpen ? 'nav open' : 'nav'} aria-label="Screens">
          {items
            .filter(({ permission }) => permission === undefined || permissions.includes(permission))
            .map(({ to, label, icon }) => (
              <Link key={to} to={to} onClick={() => setOpen(false)}>
                <Icon name={icon} />
                {label}
              </Link>
            ))}
        </nav>
        <span className="spacer" />
        <Account />
      </header>
      {/* A screen keeps no state of another workspace. */}
      <main className="main" id="main" key={workspaceId}>
        <PermittedScreen />
      </main>
      <ShortcutList />
    </div>
  );
}

/** The screen of the route if the session has its permissions. */
function PermittedScreen() {
  const { permissions } = useSession();
  const needed = useMatches({ select: (matches) => matches.at(-1)?.staticData.permissions });
  const missing = needed?.find((permission) => !permissions.includes(permission));
  return missing === undefined ? <Outlet /> : <NoPermission permission={missing} isPage />;
}

function WorkspaceMenu({ onChoose }: { readonly onChoose: () => void }) {
  const { workspaces, listed, current, choose } = useWorkspaces();
  const navigate = useNavigate();
  if (listed.error) return <PartProblem what="The workspaces" query={listed} />;
  if (workspaces.length < 2) return <Value text={current?.display_name ?? 'No workspace'} />;
  return (
    <Select
      aria-label="Workspace"
      value={current?.id}
      onChange={(id) => {
        choose(id);
        onChoose();
        void navigate({ to: '/projects' });
      }}
      options={workspaces.map(({ id, display_name }) => [id, display_name])}
    />
  );
}

export function Brand() {
  return (
    <>
      <img src="/icon.svg" alt="" width="20" height="20" />
      Runlake
    </>
  );
}

function Account() {
  const { user } = useSession();
  const { signOut } = useSessionChanges();
  const navigate = useNavigate();
  const [problem, setProblem] = useState<string>();
  const name = user?.full_name ?? user?.email;
  const leave = async () => {
    setProblem(undefined);
    try {
      await signOut();
      await navigate({ to: '/signin' });
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <>
      <div className="row">
        <ThemeButton />
        <Button
          kind="quiet icon"
          title={name ? `Sign out ${name}` : 'Sign out'}
          aria-label="Sign out"
          onClick={() => void leave()}
        >
          <Icon name="leave" />
        </Button>
        {name && (
          <span className="account-name clip">
            <Value text={name} />
          </span>
        )}
      </div>
      <Problem message={problem} />
    </>
  );
}
