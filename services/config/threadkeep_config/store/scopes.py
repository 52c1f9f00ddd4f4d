"""Scopes as views: whose keys a call sees, computed once per scope and kept for the scopes used last."""

from __future__ import annotations

from collections import OrderedDict

from threadkeep_chassis.scope import Call, Scope
from threadkeep_config.domain.resolution import Precedence
from threadkeep_config.domain.views import View


class Views:
    """Makes views, and keeps recent ones: a scope of 8 keys has 256 subsets, each with a SHA-256 for its key."""

    def __init__(self, precedence: Precedence, max_views: int = 1024) -> None:
        self.precedence = precedence
        self._max_views = max_views
        self._recent: OrderedDict[str, View] = OrderedDict()

    def inherited(self, scope: Scope) -> View:
        """What counts in the scope: entities of its subsets, the strongest first."""
        view = self._recent.get(scope.key)
        if view is not None:
            self._recent.move_to_end(scope.key)
            return view
        key_names = {}
        for names in self.precedence.subsets(scope.values.keys()):
            key_names[Scope({name: scope.values[name] for name in names}).key] = names
        view = View(tuple(key_names), scope.key, key_names)
        self._recent[scope.key] = view
        if len(self._recent) > self._max_views:
            self._recent.popitem(last=False)
        return view

    def exact(self, scope: Scope) -> View:
        """The scope's own entities."""
        return View((scope.key,))

    def watched(self, call: Call) -> View:
        """What a watch sees: all that can count in the call's scope, or the entities of the scopes of its grant."""
        if call.named_scope is not None:
            return self.inherited(call.named_scope)
        reach = call.reach
        return View(None if reach is None else tuple(sorted(reach)))
