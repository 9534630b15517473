import { getRouteApi, useNavigate } from '@tanstack/react-router';
import type { DeploymentSearch } from './search.ts';

const route = getRouteApi('/shell/agents/$deploymentId');

/** Returns the search parameters of the deployment, and a function that changes some of them. */
export function useDeploymentSearch() {
  const search = route.useSearch();
  const navigate = useNavigate({ from: '/agents/$deploymentId' });
  const change = (changes: DeploymentSearch, replace = false) =>
    void navigate({ search: (former) => ({ ...former, ...changes }), replace });
  return { search, change };
}
