/* What CPython calls when a watched dict or class changes (../changes.py). Each call counts one
   change and notes the object. Then the object is watched no more, until somebody asks for it
   again: what changes all the time costs little so. That one dies is no change: whoever relies on
   what it holds keeps it. */

enum { DEALLOCATED = 5 }; /* PyDict_EVENT_DEALLOCATED */

extern Changes km_changes; /* brought by whoever links this */

static void note_change(Object *object) {
  Object **last = km_changes.last;
  last[km_changes.count++ % km_changes.last_count] = object;
}

/* A PyDict_WatchCallback. */
int km_dict_changed(int event, Object *dict, Object *key, Object *value) {
  if (event == DEALLOCATED) return 0;
  note_change(dict);
  PyDict_Unwatch((int)km_changes.dict_watcher, dict);
  return 0;
}

/* A PyType_WatchCallback. */
int km_type_changed(Object *type) {
  note_change(type);
  PyType_Unwatch((int)km_changes.type_watcher, type);
  return 0;
}
