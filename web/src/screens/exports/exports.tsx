import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { usePermission } from '../../api/session.ts';
import { Heading } from '../../components/heading.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { Destinations } from './destinations.tsx';
import { ExportList } from './export-list.tsx';
import { exportsTabs } from './search.ts';
import './exports.css';

const route = getRouteApi('/shell/exports');

/** Exports, schedules and destinations of the workspace. */
export function Exports() {
  const { tab = 'Exports' } = route.useSearch();
  const navigate = useNavigate({ from: '/exports' });
  const canManage = usePermission('bulk-exports:manage');
  return (
    <>
      <header className="page-head">
        <Heading text="Exports" />
        <span className="muted">Runs as Parquet files in your bucket</span>
        <span className="spacer" />
        {canManage && (
          <Link to="/exports/new" className="button primary">
            New export
          </Link>
        )}
      </header>
      <div className="exports">
        <Tabs
          label="Exports"
          tabs={exportsTabs}
          selected={tab}
          onSelect={(next) => void navigate({ search: { tab: next }, replace: true })}
        >
          {tab === 'Exports' && <ExportList filter={{ scheduled: false }} />}
          {tab === 'Schedules' && <ExportList filter={{ scheduled: true }} />}
          {tab === 'Destinations' && <Destinations />}
        </Tabs>
      </div>
    </>
  );
}
