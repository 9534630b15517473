import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { readFrom } from '../../api/client.ts';
import { Crumb } from '../../components/crumb.tsx';
import { FigureList } from '../../components/figure-list.tsx';
import { Heading } from '../../components/heading.tsx';
import { PartProblem } from '../../components/states.tsx';
import type { TracesSearch } from './search.ts';

export function useProject(projectId: string) {
  return useQuery({
    queryKey: ['project', projectId],
    ...readFrom('get', '/api/v1/sessions/{session_id}', { path: { session_id: projectId } }),
    placeholderData: keepPreviousData,
  });
}

/** Head of the screens of a project, with links to its traces and threads in the same time range. */
export function ProjectHead({
  projectId,
  name,
  search,
  children,
}: {
  readonly projectId: string;
  readonly name: string | undefined;
  readonly search: Pick<TracesSearch, 'range' | 'from' | 'until'>;
  readonly children: ReactNode;
}) {
  const { range, from, until } = search;
  const link = { params: { projectId }, search: { range, from, until } } as const;
  return (
    <header className="page-head">
      <Crumb to="/projects" label="Projects" />
      <Heading text={name ?? '…'} />
      <nav className="project-tabs" aria-label="Project">
        <Link to="/projects/$projectId" {...link} activeOptions={{ exact: true, includeSearch: false }}>
          Traces
        </Link>
        <Link to="/projects/$projectId/threads" {...link} activeOptions={{ includeSearch: false }}>
          Threads
        </Link>
      </nav>
      <span className="spacer" />
      {children}
    </header>
  );
}

/** Figures above a list, by label; the error if the query that has them failed. */
export function Figures({
  figures,
  query,
}: {
  readonly figures: Readonly<Record<string, ReactNode>>;
  readonly query: Parameters<typeof PartProblem>[0]['query'];
}) {
  return (
    <>
      <PartProblem what="The figures" query={query} />
      {(query.data !== undefined || query.error === null) && <FigureList figures={figures} />}
    </>
  );
}
